//! The named pipe of this process. The system lets other users read it at most, and a client must write.

use std::io;

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};

use super::place::pipe_of;

/// Nothing that would have to be removed: the name is gone with its last instance.
#[derive(Debug)]
pub(super) struct Socket;

/// Where clients come in: the instance that waits for the next one.
#[derive(Debug)]
pub(super) struct Door(Option<NamedPipeServer>);

/// Makes the first instance of the pipe: nobody else may have made one of that name.
pub(super) fn open() -> io::Result<(Socket, Door)> {
    let mut options = ServerOptions::new();
    let first = options.first_pipe_instance(true).reject_remote_clients(true).create(pipe_of(std::process::id()))?;
    Ok((Socket, Door(Some(first))))
}

impl Door {
    /// The next client.
    pub(super) async fn next(&mut self) -> Option<NamedPipeServer> {
        let pipe = self.0.take()?;
        pipe.connect().await.ok()?;
        self.0 = ServerOptions::new().reject_remote_clients(true).create(pipe_of(std::process::id())).ok();
        Some(pipe)
    }
}
