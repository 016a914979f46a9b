//! Runs the guestbook operator against the cluster of the kubeconfig.

use kubewright::kube::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    if std::env::args().nth(1).as_deref() == Some("__declaration") {
        kubewright::declare(&guestbook::operator(), &mut std::io::stdout())?;
        return Ok(());
    }
    let client = Client::try_default().await?;
    guestbook::operator().run(client, kubewright::shutdown_signal()).await?;
    Ok(())
}
