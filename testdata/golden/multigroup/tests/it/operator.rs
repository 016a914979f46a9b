//! The operator as a whole, on a cluster of its own.

use kubewright_testing::TestCluster;

#[tokio::test]
async fn the_operator_starts_and_stops() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    let running = cluster.run(multigroup::operator()).await?;
    running.stop().await?;
    Ok(())
}
