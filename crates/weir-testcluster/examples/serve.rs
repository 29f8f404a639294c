//! Serves an empty cluster: `cargo run -p weir-testcluster --example serve -- 127.0.0.1:6443 kubeconfig rbac,controllers`.
#![expect(clippy::print_stdout, reason = "an example speaks to a person")]

use weir_testcluster::TestCluster;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned()).parse()?;
    let path = arguments.next().unwrap_or_else(|| "kubeconfig".to_owned());
    let start = std::time::Instant::now();
    let options = arguments.next().unwrap_or_default();
    let cluster = TestCluster::builder()
        .rbac(options.contains("rbac"))
        .controllers(options.contains("controllers"))
        .build()?;
    let running = cluster.serve(address).await?;
    std::fs::write(&path, running.kubeconfig())?;
    println!("{} is ready after {:?}; kubeconfig: {path}", running.url(), start.elapsed());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
