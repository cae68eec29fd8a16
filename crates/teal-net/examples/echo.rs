//! Calls per second over the loopback, and what they cost: `echo [threads] [seconds] [bytes]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use teal_env::{Clock as _, SystemClock, Timer as _};
use teal_net::{
    CertifiedPeer, Channel, ChannelOptions, PeerService, ServerIdentity, TransportLimits,
};
use teal_types::VolumeId;

const LONG: Duration = Duration::from_secs(10);

struct Echo;

impl PeerService for Echo {
    fn call(&self, _: CertifiedPeer, request: &[u8]) -> Vec<u8> {
        request.to_vec()
    }
    fn enrol(&self, _: &str, _: &str) -> Result<CertifiedPeer, String> {
        Ok(CertifiedPeer {
            volume: VolumeId::new(1),
            replica: teal_types::ReplicaNo::FIRST,
        })
    }
    fn check_peer(&self, _: CertifiedPeer) -> Result<(), String> {
        Ok(())
    }
}

/// Seconds of processor time of this process, both sides together.
fn processor() -> f64 {
    let usage = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = usage.rsplit(')').next().map_or(vec![], |rest| {
        rest.split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect()
    });
    // utime and stime, in ticks of 10 ms; the letter of the state is not among the numbers.
    (fields.get(10).unwrap_or(&0.0) + fields.get(11).unwrap_or(&0.0)) / 100.0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: usize| args.next().map_or(Ok(default), |text| text.parse());
    let (threads, seconds, bytes) = (number(4)?, number(5)?, number(4096)?);

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let dir = tempfile::tempdir()?;
    let identity = ServerIdentity::open(dir.path(), &SystemClock)?;
    let fingerprint = identity.fingerprint();
    let limits = TransportLimits {
        requests_per_second: u32::MAX,
        requests_per_peer: threads.max(32),
        ..TransportLimits::default()
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let listening = teal_net::serve(
        runtime.handle(),
        listener,
        identity,
        limits,
        Arc::new(SystemClock),
        Arc::new(Echo),
    )?;
    let address = listening.address().to_string();
    let start = SystemClock.monotonic_time();
    let identity = teal_net::enrol(
        runtime.handle(),
        &address,
        &fingerprint,
        "token",
        "bench",
        LONG,
    )?;
    let channel = Channel::new(
        runtime.handle(),
        address,
        identity,
        ChannelOptions::default(),
    );
    let enrolled = SystemClock.monotonic_time();
    let request = vec![7; bytes];
    channel.call(&request, LONG)?;
    let first = SystemClock.monotonic_time();
    println!(
        "enrolment {:?}, connection and first call {:?}",
        enrolled - start,
        first - enrolled
    );

    let stop = AtomicBool::new(false);
    let cost = processor();
    let calls: Vec<_> = std::thread::scope(|scope| {
        let work = || {
            let mut calls = 0_u64;
            while !stop.load(Ordering::Relaxed) && channel.call(&request, LONG).is_ok() {
                calls += 1;
            }
            calls
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        SystemClock.wait_until(first + Duration::from_secs(seconds as u64));
        stop.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .collect()
    });
    let (took, cost) = (
        (SystemClock.monotonic_time() - first).as_secs_f64(),
        processor() - cost,
    );
    let calls = calls.iter().sum::<u64>() as f64;
    println!(
        "{threads} threads, {bytes} bytes: {:.0} calls/s, {:.1} MB/s each way, {:.0} us of processor per call, {:.0} us per call",
        calls / took,
        calls * bytes as f64 / took / 1e6,
        cost / calls * 1e6,
        took * threads as f64 / calls * 1e6,
    );
    listening.stop(LONG);
    Ok(())
}
