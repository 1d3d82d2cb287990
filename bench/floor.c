/* The floor: what the kernel alone charges for this protocol.
 *
 * One recv and one send a request, and nothing else: no keys, no locks, no
 * queues. Any ACQ is LOCKED, any RELEASE is RELEASED. A daemon that does the
 * real work can at best come close to this. In each turn it receives from all
 * ready clients, then answers all: cheaper than one after the other.
 *
 *     cc -O2 -o floor floor.c && ./floor -l 127.0.0.1 -p 7531
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096
#define EVENTS_MAX 1024

static int poller;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* TCP_NODELAY is inherited by accepted sockets: no call for each of them. */
static int listen_on(const char *address, int port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (inet_pton(AF_INET, address, &sa.sin_addr) != 1) {
		fprintf(stderr, "floor: not an IPv4 address: %s\n", address);
		exit(1);
	}
	if (fd < 0)
		fail("socket");
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
		fail("setsockopt");
	if (bind(fd, (struct sockaddr *)&sa, sizeof sa))
		fail("bind");
	if (listen(fd, BACKLOG))
		fail("listen");
	return fd;
}

static void watch(int fd)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET,
				 .data.fd = fd };

	if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e))
		fail("epoll_ctl");
}

static void accept_all(int listener)
{
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
		watch(fd);
	if (errno != EAGAIN && errno != ECONNABORTED)
		fail("accept4");
}

/* What a turn has received from a connection. */
struct received {
	int fd;
	char first;
	char ends;
};

static struct received receive(int fd, unsigned events)
{
	char in[4096];
	ssize_t n = recv(fd, in, sizeof in, 0);
	int ends = n == 0 || (n < 0 && errno != EAGAIN) || events & EPOLLRDHUP;

	return (struct received){ fd, n > 0 ? in[0] : 0, ends };
}

static void answer(const struct received *one)
{
	if (one->first == 'A')
		send(one->fd, "LOCKED\n", 7, MSG_NOSIGNAL);
	else if (one->first == 'R')
		send(one->fd, "RELEASED\n", 9, MSG_NOSIGNAL);
	if (one->ends)
		close(one->fd);
}

int main(int argc, char **argv)
{
	static struct epoll_event events[EVENTS_MAX];
	static struct received turn[EVENTS_MAX];
	const char *address = "127.0.0.1";
	struct rlimit files;
	int port = 7531, listener, option, n, i, received;

	while ((option = getopt(argc, argv, "l:p:")) != -1) {
		if (option == 'l')
			address = optarg;
		else if (option == 'p')
			port = atoi(optarg);
		else
			return 1;
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	listener = listen_on(address, port);
	poller = epoll_create1(EPOLL_CLOEXEC);
	if (poller < 0)
		fail("epoll_create1");
	watch(listener);
	for (;;) {
		n = epoll_wait(poller, events, EVENTS_MAX, -1);
		if (n < 0 && errno != EINTR)
			fail("epoll_wait");
		received = 0;
		for (i = 0; i < n; i++) {
			if (events[i].data.fd == listener)
				accept_all(listener);
			else
				turn[received++] = receive(events[i].data.fd, events[i].events);
		}
		for (i = 0; i < received; i++)
			answer(&turn[i]);
	}
}
