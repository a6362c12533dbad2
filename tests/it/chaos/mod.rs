//! A small TCP proxy in front of a Redis or a SQL server, and what it can do to the bytes: cut, refuse, delay, stop one direction,
//! swallow everything or one reply, change a reply, and point to another server.
//!
//! A rule waits for bytes that a client sends, e.g. `COMMIT`, a key, or the hash of a script ([`script`]), and acts once.

mod pump;
mod rules;
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use rules::{Act, Matched, Then, script};

use crate::servers::TestEnv;

/// Far above what anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way that bytes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Where a proxy connects to.
#[derive(Debug, Clone)]
pub(crate) enum Upstream {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Upstream {
    /// The server that a URL of `thumbd::dev` names.
    pub(crate) fn of(url: &str) -> Self {
        let path = url
            .strip_prefix("redis+unix://")
            .or_else(|| Some(url.split_once("socket=")?.1));
        if let Some(path) = path {
            let path = percent_encoding::percent_decode_str(path);
            return Self::Unix(PathBuf::from(path.decode_utf8().unwrap().as_ref()));
        }
        let rest = url.split_once("://").unwrap().1;
        let host = rest.split('/').next().unwrap().rsplit('@').next().unwrap();
        Self::Tcp(host.parse().unwrap())
    }

    async fn connect(&self) -> std::io::Result<Stream> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}
type Stream = Box<dyn Duplex>;

/// A proxy; it ends when it is dropped, with all its connections.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

/// What the proxy and its connections share.
struct Shared {
    state: Mutex<State>,
    /// Connections that are open, and all that ever were.
    connections: watch::Sender<(u64, u64)>,
}

struct State {
    upstream: Upstream,
    refuse: bool,
    black_hole: bool,
    delay: Duration,
    rules: Vec<rules::Rule>,
    rewrites: Vec<(Vec<u8>, Vec<u8>)>,
    /// Ends the connections of now.
    cut: CancellationToken,
    /// Ends one way of the connections of now.
    halves: [CancellationToken; 2],
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    pub(crate) async fn before(upstream: Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                upstream,
                refuse: false,
                black_hole: false,
                delay: Duration::ZERO,
                rules: Vec::new(),
                rewrites: Vec::new(),
                cut: CancellationToken::new(),
                halves: Default::default(),
            }),
            connections: watch::Sender::default(),
        });
        let task = tokio::spawn(pump::accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// In front of what a URL of `thumbd::dev` names.
    pub(crate) async fn before_url(url: &str) -> Self {
        Self::before(Upstream::of(url)).await
    }

    pub(crate) fn redis_url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// `like` gives the name of the database.
    pub(crate) fn database_url(&self, like: &str) -> String {
        let path = like.split('?').next().unwrap();
        let name = path.rsplit('/').next().unwrap();
        format!("mysql://root@{}/{name}?ssl-mode=disabled", self.address)
    }

    /// Cuts all connections of now.
    pub(crate) fn cut(&self) {
        std::mem::take(&mut self.shared.state().cut).cancel();
    }

    /// Takes no new connections, or takes them again. Those of now stay.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.shared.state().refuse = refuse;
    }

    /// Lets every chunk of bytes wait, either way.
    pub(crate) fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Closes one way of the connections of now.
    pub(crate) fn half_close(&self, way: Way) {
        std::mem::take(&mut self.shared.state().halves[way as usize]).cancel();
    }

    /// Swallows everything on all connections, new ones too, or no longer. Those that were robbed are cut then.
    pub(crate) fn black_hole(&self, on: bool) {
        self.shared.state().black_hole = on;
        if !on {
            self.cut();
        }
    }

    /// New connections go there. Those of now stay.
    pub(crate) fn retarget(&self, upstream: Upstream) {
        self.shared.state().upstream = upstream;
    }

    /// From now on replaces bytes in replies, of the same length and within one chunk.
    pub(crate) fn rewrite(&self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len());
        let rewrite = (from.as_bytes().to_vec(), to.as_bytes().to_vec());
        self.shared.state().rewrites.push(rewrite);
    }

    /// Acts the next time that a client sends these bytes.
    pub(crate) fn once(&self, pattern: impl AsRef<[u8]>, act: Act) -> Matched {
        self.rule(pattern.as_ref(), Some(act))
    }

    /// Counts how often clients send these bytes from now on.
    pub(crate) fn count(&self, pattern: impl AsRef<[u8]>) -> Matched {
        self.rule(pattern.as_ref(), None)
    }

    fn rule(&self, pattern: &[u8], act: Option<Act>) -> Matched {
        let (rule, matched) = rules::rule(pattern, act);
        self.shared.state().rules.push(rule);
        matched
    }

    /// Undoes all that lasts, and forgets the rules.
    pub(crate) fn heal(&self) {
        let robbed = {
            let mut state = self.shared.state();
            (state.refuse, state.delay) = (false, Duration::ZERO);
            state.rules.clear();
            state.rewrites.clear();
            std::mem::take(&mut state.black_hole)
        };
        if robbed {
            self.cut();
        }
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> u64 {
        self.shared.connections.borrow().0
    }

    /// Waits until so many connections were made in all.
    pub(crate) async fn made(&self, number: u64) {
        let mut seen = self.shared.connections.subscribe();
        let enough = seen.wait_for(|(_, made)| *made >= number);
        let wait = tokio::time::timeout(PATIENCE, enough).await;
        wait.expect("so many connections come").unwrap();
    }
}

/// Proxies in front of both servers of an environment, and the environment behind them.
pub(crate) async fn before(env: &TestEnv) -> (TestEnv, Proxy, Proxy) {
    let redis = Proxy::before_url(&env.redis_url).await;
    let sql = Proxy::before_url(&env.database_url).await;
    let env = TestEnv {
        redis_url: redis.redis_url(),
        database_url: sql.database_url(&env.database_url),
        key_prefix: env.key_prefix.clone(),
    };
    (env, redis, sql)
}
