//! Probes that are really made: startup, readiness and liveness, by a command, HTTP, a connection, or gRPC's health
//! service.
//!
//! As pkg/kubelet/prober: the first after its initial delay, then one each period; a startup probe keeps the others
//! waiting; a liveness probe that fails too often in a row ends its container.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubewright::EventType;
use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubewright_objects::api::core::v1::{Container, GRPCAction, HTTPGetAction, Pod, Probe};
use tokio::net::TcpStream;

use super::Processes;
use super::instance::{Instance, Running};
use kubewright_objects::meta;

/// Makes the probes of a container as long as this is polled.
pub(super) async fn run(processes: &Processes, pod: &Pod, instance: &Instance) {
    let container = &instance.container;
    if let Some(probe) = &container.startup_probe {
        if !until_it_is_well(processes, pod, instance, "Startup", probe).await {
            let message = format!("Container {} failed startup probe, will be restarted", container.name);
            processes.stop_container(pod, &container.name, Some(probe), &message);
            return;
        }
        if instance.found(true, container.readiness_probe.is_none()) {
            processes.tell(meta::uid(&pod.metadata), "a startup probe succeeded", None);
        }
    }
    let readiness = async {
        if let Some(probe) = &container.readiness_probe {
            readiness(processes, pod, instance, probe).await;
        }
    };
    let liveness = async {
        if let Some(probe) = &container.liveness_probe {
            liveness(processes, pod, instance, probe).await;
        }
    };
    tokio::join!(readiness, liveness);
}

fn seconds(value: Option<i32>, otherwise: u64) -> Duration {
    Duration::from_secs(value.map_or(otherwise, |value| u64::try_from(value).unwrap_or(0)))
}

fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds, 10).max(Duration::from_secs(1))
}

/// Makes one probe, and says when it fails.
async fn once(processes: &Processes, pod: &Pod, instance: &Instance, name: &str, probe: &Probe) -> bool {
    let Some(running) = instance.running() else {
        return false;
    };
    let limit = seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1));
    let made = tokio::time::timeout(limit, make(processes, instance, running, probe)).await;
    let failure = match made {
        Ok(Ok(())) => return true,
        Ok(Err(why)) => format!("{name} probe failed: {why}"),
        Err(_) => format!("{name} probe failed: timed out after {}s", limit.as_secs()),
    };
    let said = (EventType::Warning, "Unhealthy", failure);
    processes.tell(meta::uid(&pod.metadata), "a probe failed", Some(said));
    false
}

async fn make(processes: &Processes, instance: &Instance, running: &Running, probe: &Probe) -> Result<(), String> {
    let container = &instance.container;
    if let Some(exec) = &probe.exec {
        let command = exec.command.clone().unwrap_or_default();
        return match processes.run_beside(instance, running, &command).await? {
            (0, _) => Ok(()),
            (_, said) => Err(said),
        };
    }
    if let Some(get) = &probe.http_get {
        return http(running, container, get).await;
    }
    if let Some(socket) = &probe.tcp_socket {
        let host = socket.host.as_deref().unwrap_or(&running.ip);
        return connect(host, port(container, &socket.port)?).await.map(drop);
    }
    match &probe.grpc {
        Some(health) => grpc(running, health).await,
        None => Err("the probe says nothing of how it is made".to_owned()),
    }
}

/// Makes a probe until it succeeds; false when it failed too often first.
async fn until_it_is_well(processes: &Processes, pod: &Pod, instance: &Instance, name: &str, probe: &Probe) -> bool {
    tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
    for _ in 0..probe.failure_threshold.unwrap_or(3).max(1) {
        if once(processes, pod, instance, name, probe).await {
            return true;
        }
        tokio::time::sleep(period(probe)).await;
    }
    false
}

async fn readiness(processes: &Processes, pod: &Pod, instance: &Instance, probe: &Probe) {
    tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let (mut well, mut ill) = (0, 0);
    loop {
        match once(processes, pod, instance, "Readiness", probe).await {
            true => (well, ill) = (well + 1, 0),
            false => (well, ill) = (0, ill + 1),
        }
        let becomes = if well >= probe.success_threshold.unwrap_or(1) {
            Some(true)
        } else {
            (ill >= probe.failure_threshold.unwrap_or(3)).then_some(false)
        };
        if becomes.is_some_and(|ready| instance.found(true, ready)) {
            processes.tell(meta::uid(&pod.metadata), "readiness changed", None);
        }
        // While it comes up the next probe comes sooner: a pod is ready as soon as it is.
        let soon = Duration::from_millis(200);
        let wait = if becomes.is_none() && ill > 0 {
            soon.max(period(probe) / 10)
        } else {
            period(probe)
        };
        tokio::time::sleep(wait).await;
    }
}

async fn liveness(processes: &Processes, pod: &Pod, instance: &Instance, probe: &Probe) {
    tokio::time::sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let mut ill = 0;
    while ill < probe.failure_threshold.unwrap_or(3).max(1) {
        match once(processes, pod, instance, "Liveness", probe).await {
            true => ill = 0,
            false => ill += 1,
        }
        tokio::time::sleep(period(probe)).await;
    }
    let name = &instance.container.name;
    let message = format!("Container {name} failed liveness probe, will be restarted");
    processes.stop_container(pod, name, Some(probe), &message);
}

/// A port by its number or by the name that the container gives it.
fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    let number = number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0);
    number.ok_or_else(|| format!("there is no port {port:?}"))
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let connected = TcpStream::connect((host, port)).await;
    connected.map_err(|error| format!("dial tcp {host}:{port}: connect: {}", plain(&error)))
}

/// The error in the words of Go.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

/// Asks by HTTP; anything from 200 to 399 is well (`probe/http`).
pub(super) async fn http(running: &Running, container: &Container, get: &HTTPGetAction) -> Result<(), String> {
    if get.scheme.as_deref() == Some("HTTPS") {
        return Err("probes by HTTPS are not made to processes; say HTTP, tcpSocket or exec".to_owned());
    }
    let host = get.host.as_deref().unwrap_or(&running.ip);
    let port = port(container, &get.port)?;
    let path = get.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    let stream = connect(host, port)
        .await
        .map_err(|why| format!("Get \"http://{host}:{port}{path}\": {why}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let mut request = http::Request::get(&path).header(http::header::USER_AGENT, "kube-probe/1.36");
    let headers = get.http_headers.iter().flatten();
    let mut has_host = false;
    for header in headers {
        has_host |= header.name.eq_ignore_ascii_case("host");
        request = request.header(&header.name, &header.value);
    }
    if !has_host {
        request = request.header(http::header::HOST, format!("{host}:{port}"));
    }
    let request = request
        .body(Full::new(Bytes::new()))
        .map_err(|error| error.to_string())?;
    let in_words = |error: hyper::Error| match error.is_incomplete_message() || error.is_canceled() {
        true => "EOF".to_owned(),
        false => error.to_string(),
    };
    let answered = async {
        let answer = sender.send_request(request).await.map_err(in_words)?;
        match answer.status().as_u16() {
            200..=399 => Ok(()),
            code => Err(format!("HTTP probe failed with statuscode: {code}")),
        }
    };
    over(connection, answered).await
}

/// The answer to a request, whose connection is driven meanwhile. A server that closes when it has answered ends the
/// connection before the answer is looked at.
async fn over<C, T>(
    connection: impl Future<Output = C>,
    answered: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let mut answered = std::pin::pin!(answered);
    tokio::select! {
        biased;
        answered = &mut answered => answered,
        _ = connection => answered.await,
    }
}

/// Asks the health service of gRPC (`grpc.health.v1.Health/Check`).
async fn grpc(running: &Running, health: &GRPCAction) -> Result<(), String> {
    let port = u16::try_from(health.port).map_err(|_| "there is no such port".to_owned())?;
    let stream = connect(&running.ip, port).await?;
    let in_words = |error: hyper::Error| format!("service unhealthy: {error}");
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(in_words)?;
    let request = http::Request::post(format!("http://{}:{port}/grpc.health.v1.Health/Check", running.ip))
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header(http::header::TE, "trailers")
        .body(Full::new(question(health.service.as_deref().unwrap_or_default())))
        .map_err(|error| error.to_string())?;
    let answered = async {
        use http_body_util::BodyExt as _;
        let answer = sender.send_request(request).await.map_err(in_words)?;
        let body = http_body_util::Limited::new(answer.into_body(), 64 * 1024)
            .collect()
            .await;
        let body = body.map_err(|error| format!("service unhealthy: {error}"))?.to_bytes();
        match is_serving(&body) {
            true => Ok(()),
            false => Err("service unhealthy (responded with \"NOT_SERVING\")".to_owned()),
        }
    };
    over(connection, answered).await
}

/// A HealthCheckRequest as gRPC sends it: uncompressed, its length, the name of the service as field 1.
fn question(service: &str) -> Bytes {
    // The API server lets no longer names in.
    let length = u8::try_from(service.len().min(120)).unwrap_or(0);
    let service = &service.as_bytes()[..usize::from(length)];
    let mut message = Vec::new();
    if length > 0 {
        message.extend([0x0a, length]);
        message.extend(service);
    }
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
    framed.extend(message);
    framed.into()
}

/// Whether a HealthCheckResponse says SERVING, 1 in field 1.
fn is_serving(framed: &[u8]) -> bool {
    framed.get(5..) == Some(&[0x08, 0x01])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ports() {
        let container = json!({ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] });
        let container: Container = serde_json::from_value(container).expect("a container");
        let check = |wanted: Value, expected: Option<u16>| {
            let wanted: IntOrString = serde_json::from_value(wanted).expect("a port");
            assert_eq!(port(&container, &wanted).ok(), expected, "{wanted:?}");
        };
        check(json!(80), Some(80));
        check(json!("web"), Some(8080));
        check(json!("81"), Some(81));
        check(json!("other"), None);
        check(json!(0), None);
        check(json!(70_000), None);
    }

    #[tokio::test]
    async fn an_answer_counts_though_the_connection_has_ended() {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let connection = async { answer.send(200) };
        let answered = async { answered.await.map_err(|_| "EOF".to_owned()) };
        assert_eq!(over(connection, answered).await, Ok(200));
    }

    #[test]
    fn what_grpc_says() {
        assert_eq!(&question("")[..], &[0, 0, 0, 0, 0]);
        assert_eq!(&question("ab")[..], &[0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert!(is_serving(&[0, 0, 0, 0, 2, 8, 1]));
        assert!(!is_serving(&[0, 0, 0, 0, 2, 8, 2]));
        assert!(!is_serving(&[]));
    }
}
