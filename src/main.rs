//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = mcp_proxy::runtime::branch_off() {
        return code;
    }
    ExitCode::SUCCESS
}
