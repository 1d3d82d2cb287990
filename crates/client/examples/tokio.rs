//! The client without I/O in an async runtime. `cargo run --example tokio -- HOST:PORT
//! KEY` holds a lock for a second; without arguments it serves itself.

use poolcounter::{Answer, Conversation, LockRequest};
use std::io::{Error, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

include!("support/server.rs");

struct AsyncConnection {
    stream: TcpStream,
    conversation: Conversation,
}

impl AsyncConnection {
    async fn connect(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        Ok(AsyncConnection { stream, conversation: Conversation::new() })
    }

    async fn lock(&mut self, request: &LockRequest) -> std::io::Result<Answer> {
        self.conversation.lock(request).map_err(Error::other)?;
        self.exchange().await
    }

    async fn release(&mut self) -> std::io::Result<Answer> {
        self.conversation.release().map_err(Error::other)?;
        self.exchange().await
    }

    async fn exchange(&mut self) -> std::io::Result<Answer> {
        self.stream.write_all(&self.conversation.take_output()).await?;
        let mut buffer = [0; 512];
        loop {
            let received = self.stream.read(&mut buffer).await?;
            if received == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let answer = self.conversation.receive(&buffer[..received]);
            if let Some(answer) = answer.map_err(Error::other)? {
                return Ok(answer);
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or_else(serve);
    let key = arguments.next().unwrap_or_else(|| "example".to_owned());
    let mut connection = AsyncConnection::connect(&server).await?;
    let request = LockRequest::new(key).timeout(Duration::from_secs(10));
    println!("{:?}", connection.lock(&request).await?);
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{:?}", connection.release().await?);
    Ok(())
}
