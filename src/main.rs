//! The program: the hidden parts of its binary first, then the command line.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Guard and launcher branch off before anything else exists.
    if let Some(code) = mcp_proxy::runtime::branch_off() {
        return code;
    }
    mcp_proxy::cli::app::main()
}
