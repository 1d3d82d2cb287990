//! A client for tokio, to be copied: it asks the servers of a key in order, and each lock has a
//! connection of its own.
//!
//! **It is cancel-safe.** A future that is dropped, as by `tokio::time::timeout`, closes its
//! connection, and so does a guard: the server then ends the wait, or gives the lock to the next
//! client, with the work undone. A wait whose connection is lost is not started again, as the
//! blocking client does: it ends with `Error::Lost`.

use poolcounter::{
    Answer, Conversation, Error, LockRequest, Outcome, ServerName, UnexpectedAnswer, order,
    watch_the_host,
};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How often connecting to a server is tried, as MediaWiki's client does.
const ATTEMPTS: usize = 2;

/// A name server that is well answers in a fraction of this.
const LOOK_UP_TIME: Duration = Duration::from_secs(2);

/// The servers, and how long to wait for them: as `poolcounter::Client`.
#[derive(Clone, Debug)]
pub(crate) struct AsyncClient {
    pub(crate) servers: Vec<ServerName>,
    /// For one attempt to connect to one address.
    pub(crate) connect_timeout: Duration,
    /// For an answer, besides the time that a request lets the server wait.
    pub(crate) answer_timeout: Duration,
    /// How long a server's host may be silent before its locks count as lost.
    pub(crate) keepalive: Duration,
}

/// A lock. Dropped, it is given up, with its work undone.
#[derive(Debug)]
pub(crate) struct AsyncLock {
    stream: TcpStream,
    conversation: Conversation,
    pub(crate) server: ServerName,
    key: Vec<u8>,
    pub(crate) answer_timeout: Duration,
}

impl AsyncClient {
    pub(crate) fn new(servers: impl IntoIterator<Item = ServerName>) -> Self {
        AsyncClient {
            servers: servers.into_iter().collect(),
            connect_timeout: Duration::from_millis(100),
            answer_timeout: Duration::from_secs(5),
            keepalive: Duration::from_secs(25),
        }
    }

    /// Asks for a lock and waits for it. Give the request a timeout: without one, a daemon that
    /// hangs looks like a lock that is held.
    pub(crate) async fn lock(&self, request: &LockRequest) -> Result<Outcome<AsyncLock>, Error> {
        let mut conversation = Conversation::new();
        // Before it connects: an invalid request is refused here.
        conversation.lock(request).map_err(Error::Refused)?;
        let (server, stream) = self.connect(request.key()).await?;
        let (key, answer_timeout) = (request.key().to_vec(), self.answer_timeout);
        let mut lock = AsyncLock { stream, conversation, server, key, answer_timeout };
        let answer = lock.exchange().await?;
        Outcome::of(answer, || lock)
    }

    /// Connects to the first server of a key that accepts.
    async fn connect(&self, key: &[u8]) -> Result<(ServerName, TcpStream), Error> {
        let mut passed_over = Vec::new();
        for server in order(&self.servers, key) {
            match self.reach(server).await {
                Ok(stream) => return Ok((server.clone(), stream)),
                Err(why) => passed_over.push((server.clone(), why)),
            }
        }
        Err(Error::NoServer(passed_over))
    }

    async fn reach(&self, server: &ServerName) -> io::Result<TcpStream> {
        let mut result = self.connect_once(server).await;
        for _ in 1..ATTEMPTS {
            if result.is_err() {
                result = self.connect_once(server).await;
            }
        }
        result
    }

    async fn connect_once(&self, server: &ServerName) -> io::Result<TcpStream> {
        let mut why = io::Error::new(ErrorKind::NotFound, "the name has no address");
        let place = (server.host(), server.port());
        for address in within(LOOK_UP_TIME, lookup_host(place)).await? {
            match within(self.connect_timeout, TcpStream::connect(address)).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    watch_the_host(&stream, self.keepalive);
                    return Ok(stream);
                }
                Err(e) => why = e,
            }
        }
        Err(why)
    }
}

impl AsyncLock {
    /// Gives the lock back, with its work done.
    pub(crate) async fn release(mut self) -> Result<(), Error> {
        self.conversation.release().map_err(Error::Refused)?;
        self.exchange().await.map(drop)
    }

    /// Waits until the lock is lost; returns why. To be selected against the work.
    pub(crate) async fn lost(&mut self) -> io::Error {
        // A server sends nothing unasked: anything to read is the end.
        match self.stream.read(&mut [0]).await {
            Ok(_) => io::Error::new(ErrorKind::UnexpectedEof, "the server closed it"),
            Err(e) => e,
        }
    }

    /// Sends the question and waits for its answer. After an error the state of the lock is
    /// unknown: drop it.
    async fn exchange(&mut self) -> Result<Answer, Error> {
        let limit = self.conversation.answer_within(self.answer_timeout);
        let answer = match limit {
            Some(limit) => within(limit, self.ask()).await,
            None => self.ask().await,
        };
        let lost =
            |cause| Error::Lost { key: self.key.clone(), server: self.server.clone(), cause };
        answer.map_err(lost)?.map_err(Error::Unexpected)
    }

    async fn ask(&mut self) -> io::Result<Result<Answer, UnexpectedAnswer>> {
        self.stream.write_all(&self.conversation.take_output()).await?;
        let mut buffer = [0; 512];
        loop {
            let received = self.stream.read(&mut buffer).await?;
            if received == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed it"));
            }
            if let Some(answer) = self.conversation.receive(&buffer[..received]).transpose() {
                return Ok(answer);
            }
        }
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}
