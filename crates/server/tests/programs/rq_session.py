"""A queue of rq: jobs, a worker in burst mode, a result, a failed job. Arguments: the port."""
import sys

import redis
import rq

if tuple(int(part) for part in rq.__version__.split(".")[:2]) >= (1, 12):
    print("skipped: rq %s keeps results in streams (XADD)" % rq.__version__)
    sys.exit(0)
from rq.job import Job

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import jobs_of_rq

client = redis.Redis(port=int(sys.argv[1]))
queue = rq.Queue(connection=client)
jobs = [queue.enqueue(jobs_of_rq.add, number, 1) for number in range(5)]
failing = queue.enqueue(jobs_of_rq.fail)
assert len(queue) == 6, len(queue)
worker = rq.SimpleWorker([queue], connection=client)
worker.work(burst=True, logging_level="CRITICAL")
for number, job in enumerate(jobs):
    job.refresh()
    assert job.get_status() == "finished" and job.result == number + 1, (job.get_status(), job.result)
failing.refresh()
assert failing.get_status() == "failed", failing.get_status()
assert failing.id in queue.failed_job_registry.get_job_ids()
assert "on purpose" in Job.fetch(failing.id, connection=client).exc_info
assert len(queue) == 0 and len(queue.finished_job_registry.get_job_ids()) == 5
print("ok")
