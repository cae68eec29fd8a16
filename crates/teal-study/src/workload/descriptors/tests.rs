//! Which threads share descriptors, and how many all of them need.

use super::*;
use crate::wml::parse_script;
use crate::workload::plan::{WorkloadOptions, plan_script};

fn planned(instances: u64, flowops: &str) -> WorkloadPlan {
    let text = format!(
        "define fileset name=ff,path=$dir,entries=10,size=64k,dirwidth=5,prealloc\n\
         define process name=pp,instances={instances} {{ thread name=tt {{\n{flowops}\n}} }}\nrun 1"
    );
    let script = parse_script("t.wml", &text, &mut |_| Err("no".into())).unwrap();
    plan_script(&script, WorkloadOptions::new("/lab")).unwrap_or_else(|error| panic!("{error}"))
}

fn wanted(plan: &WorkloadPlan) -> [u64; 2] {
    [DescriptorUse::Own, DescriptorUse::Shared].map(|with| wanted_descriptors(plan, with) - OWN)
}

#[test]
fn threads_at_random_offsets_share_and_others_do_not() {
    let random = "flowop read name=rr,filename=ff,iosize=2k,random,opennext\nflowop hog name=hh";
    assert_eq!(wanted(&planned(200, random)), [200 * 128, 200 + 10 * 8]);
    let ordered = "flowop read name=rr,filename=ff,iosize=2k,opennext";
    assert_eq!(wanted(&planned(200, ordered)), [200 * 128; 2]);
    let mixed = format!("{random}\nflowop closefile name=cc,fd=3");
    assert_eq!(wanted(&planned(200, &mixed)), [200 * 128; 2]);
}

#[test]
fn slots_are_counted_once_each() {
    let named = "flowop openfile name=oo,filename=ff,fd=1\nflowop read name=rr,fd=1,iosize=2k\n\
                 flowop closefile name=cc,fd=1\nflowop openfile name=pp,filename=ff,fd=9\n\
                 flowop closefile name=dd,fd=9\nflowop listdir name=ll,filename=ff";
    assert_eq!(wanted(&planned(3, named)), [3 * 2; 2]);
}

#[test]
fn one_descriptor_is_shared_for_each_file_and_way_of_opening() {
    let shared = SharedDescriptors::default();
    let open = || OwnedFd::from(tempfile::tempfile().unwrap());
    let random = FlowopFlags::RANDOM;
    let first = shared.share(0, 3, random, open());
    let same = shared.share(0, 3, random | FlowopFlags::OPENNEXT, open());
    assert!(
        Arc::ptr_eq(&first, &same),
        "how it is picked does not matter"
    );
    let synced = shared.share(0, 3, random | FlowopFlags::DSYNC, open());
    let other = shared.share(0, 4, random, open());
    assert!(!Arc::ptr_eq(&first, &synced) && !Arc::ptr_eq(&first, &other));
    drop((first, same));
    let again = shared.share(0, 3, random, open());
    assert_eq!(Arc::strong_count(&again), 1, "a closed one is opened anew");
}
