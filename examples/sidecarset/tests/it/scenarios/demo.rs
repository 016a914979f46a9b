//! The demo comes to its end.

#[allow(dead_code, unreachable_pub, reason = "it is a program")]
#[path = "../../../examples/sidecarset-demo.rs"]
mod example;

#[tokio::test]
async fn the_demo_comes_to_its_end() -> super::Outcome {
    let printed = kubewright_demo::play(example::demo()?).await?;
    for text in [
        "the operator runs as system:serviceaccount:sidecarset-system:controller-manager",
        "sidecarset runs in this process",
        "SidecarSet log-agent is in three pods after",
    ] {
        assert!(
            printed.contains(text),
            "the demo should print {text:?}; it printed:\n{printed}"
        );
    }
    Ok(())
}
