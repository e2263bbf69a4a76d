//! The named pipe of this process. The system lets other users read it at most, and a client must write.

use std::io;

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use tokio::task::JoinSet;

use super::place::pipe_of;
use super::{Desk, client};

/// Clients at a time.
const CLIENTS: usize = 64;

/// The first instance of the pipe: nobody else may have made one of that name.
pub(super) fn first() -> io::Result<NamedPipeServer> {
    ServerOptions::new().first_pipe_instance(true).reject_remote_clients(true).create(pipe_of(std::process::id()))
}

/// Takes clients until its task ends.
pub(super) async fn serve(mut pipe: NamedPipeServer, desk: Desk) {
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        if clients.len() >= CLIENTS {
            clients.join_next().await;
            continue;
        }
        if pipe.connect().await.is_err() {
            return;
        }
        let next = ServerOptions::new().reject_remote_clients(true).create(pipe_of(std::process::id()));
        clients.spawn(client::serve(pipe, desk.clone()));
        match next {
            Ok(next) => pipe = next,
            Err(_) => return,
        }
    }
}
