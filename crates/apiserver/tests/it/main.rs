//! Requests against a server in this process, without sockets: malformed ones (`fuzz`), and random sequences of them with
//! restarts in between (`stateful`).

mod fuzz;
mod stateful;
