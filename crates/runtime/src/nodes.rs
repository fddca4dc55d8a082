//! Threads stay on a node of the machine, where the medium lies on several.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps the calling thread on the processors of one of the nodes, chosen in turn by its `number`;
/// on those it may run on. Where there is nothing to choose it stays as it is.
pub(crate) fn stay(nodes: &[Vec<usize>], number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let near = |processors: &Vec<usize>| {
        let mut near = CpuSet::new();
        let usable = processors.iter().filter(|at| **at < CpuSet::MAX_CPU && allowed.is_set(**at));
        usable.for_each(|at| near.set(*at));
        near
    };
    let nodes: Vec<CpuSet> = nodes.iter().map(near).filter(|near| near.count() > 0).collect();
    if nodes.len() < 2 {
        return;
    }
    let near = &nodes[number % nodes.len()];
    if let Err(error) = sched_setaffinity(None, near) {
        tracing::warn!(%error, "a thread could not be kept on its node");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors() -> Vec<usize> {
        let allowed = sched_getaffinity(None).expect("asked");
        (0..CpuSet::MAX_CPU).filter(|at| allowed.is_set(*at)).collect()
    }

    #[test]
    fn threads_stay_on_nodes_and_on_processors_that_they_may_have() {
        let all = processors();
        let [first, second, ..] = all[..] else { return };
        let nodes = [vec![first], vec![], vec![second, CpuSet::MAX_CPU + 7], vec![CpuSet::MAX_CPU - 1]];
        let stayed = |number| {
            let nodes = nodes.clone();
            std::thread::spawn(move || {
                stay(&nodes, number);
                processors()
            })
            .join()
            .expect("no panic")
        };
        assert_eq!([0, 1, 2].map(stayed), [vec![first], vec![second], vec![first]]);
        stay(&[vec![first]], 0);
        stay(&[], 3);
        assert_eq!(processors(), all, "one node is no choice");
    }
}
