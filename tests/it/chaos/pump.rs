//! Connections of the proxy: each is two tasks that carry bytes, one a way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::rules::{self, Act, Then};
use super::{Shared, Stream, Way};

/// Read at once: longer than the reply of INFO, so that this comes in one piece.
const CHUNK: usize = 64 * 1024;
/// End of what a client sent before, for patterns across chunks.
const BEFORE: usize = 256;

const PASS: u8 = 0;
const CUT_AT_REPLY: u8 = 1;
const SWALLOW: u8 = 2;

pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // They end with this task.
    let mut connections: Vec<AbortOnDropHandle<()>> = Vec::new();
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        connections.retain(|one| !one.is_finished());
        if shared.state().refuse {
            let _ = client.set_zero_linger();
            continue;
        }
        let shared = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            shared
                .connections
                .send_modify(|(open, made)| (*open, *made) = (*open + 1, *made + 1));
            let open = Open(&shared);
            connection(client, &shared).await;
            drop(open);
        });
        connections.push(AbortOnDropHandle::new(task));
    }
}

struct Open<'a>(&'a Shared);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.send_modify(|(open, _)| *open -= 1);
    }
}

/// One connection, from its beginning to its end.
async fn connection(client: TcpStream, shared: &Arc<Shared>) {
    let (upstream, black_hole, cut, halves) = {
        let state = shared.state();
        (
            state.upstream.clone(),
            state.black_hole,
            state.cut.child_token(),
            state.halves.clone(),
        )
    };
    let _ = client.set_nodelay(true);
    if black_hole {
        // It never comes to the server.
        let mut client = client;
        let mut sink = [0; 1024];
        let swallow = async { while client.read(&mut sink).await.is_ok_and(|read| read > 0) {} };
        tokio::select! { () = swallow => {}, () = cut.cancelled() => {} }
        return;
    }
    let Ok(server) = upstream.connect().await else {
        let _ = client.set_zero_linger();
        return;
    };
    let (client_read, client_write) = tokio::io::split(Box::new(client) as Stream);
    let (server_read, server_write) = tokio::io::split(server);
    let replies = Arc::new(AtomicU8::new(PASS));
    let pump = |way, read, write| Pump {
        shared: Arc::clone(shared),
        way,
        read,
        write,
        cut: cut.clone(),
        half: halves[way as usize].clone(),
        replies: Arc::clone(&replies),
    };
    let up = pump(Way::ToServer, client_read, server_write).run();
    let down = pump(Way::ToClient, server_read, client_write).run();
    // Both sockets are closed when both ways have ended, or at once on a cut.
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        () = cut.cancelled() => {}
    }
}

struct Pump {
    shared: Arc<Shared>,
    way: Way,
    read: ReadHalf<Stream>,
    write: WriteHalf<Stream>,
    cut: CancellationToken,
    half: CancellationToken,
    /// What happens to replies on this connection.
    replies: Arc<AtomicU8>,
}

impl Pump {
    async fn run(mut self) {
        let half = self.half.clone();
        tokio::select! {
            () = self.carry() => {}
            () = half.cancelled() => {}
        }
        let _ = self.write.shutdown().await;
    }

    async fn carry(&mut self) {
        let mut chunk = vec![0; CHUNK];
        let mut before = Vec::new();
        loop {
            let Ok(read @ 1..) = self.read.read(&mut chunk).await else {
                return;
            };
            let bytes = &mut chunk[..read];
            let (delay, black_hole) = {
                let state = self.shared.state();
                (state.delay, state.black_hole)
            };
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            if black_hole {
                continue;
            }
            let goes_on = match self.way {
                Way::ToServer => self.request(&before, bytes).await,
                Way::ToClient => self.reply(bytes),
            };
            if !goes_on {
                continue;
            }
            if self.write.write_all(bytes).await.is_err() {
                return;
            }
            before.extend_from_slice(bytes);
            before.drain(..before.len().saturating_sub(BEFORE));
        }
    }

    /// Whether these bytes go to the server.
    async fn request(&self, before: &[u8], bytes: &[u8]) -> bool {
        let act = rules::act(&mut self.shared.state().rules, before, bytes);
        match act {
            None => true,
            Some((Act::SwallowReply(then), _)) => {
                let replies = match then {
                    Then::Cut => CUT_AT_REPLY,
                    Then::Hold => SWALLOW,
                };
                self.replies.store(replies, Ordering::SeqCst);
                true
            }
            Some((Act::CutBefore, _)) => {
                self.cut.cancel();
                false
            }
            Some((Act::HoldRequest, release)) => {
                release.notified().await;
                true
            }
        }
    }

    /// Whether these bytes go to the client.
    fn reply(&self, bytes: &mut [u8]) -> bool {
        match self.replies.load(Ordering::SeqCst) {
            CUT_AT_REPLY => {
                self.cut.cancel();
                return false;
            }
            SWALLOW => return false,
            _ => {}
        }
        for (from, to) in &self.shared.state().rewrites {
            let length = from.len();
            for at in 0..(bytes.len() + 1).saturating_sub(length) {
                if bytes[at..at + length] == **from {
                    bytes[at..at + length].copy_from_slice(to);
                }
            }
        }
        true
    }
}
