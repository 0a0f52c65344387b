"""Whose processes are on the GPU, and does ours run near it?"""

from __future__ import annotations

import time

import pytest

from diag_exporter.gpu.host import Host, parse_cpus, title
from tests.exporters.gpu.machine import Machine

GIB = 1 << 30
DOCKER = "/system.slice/docker-0123456789abcdef.scope"


def serve(machine: Machine, gpu: int = 0) -> None:
    machine.process(100, "VLLM::EngineCore", cgroup=DOCKER)
    machine.driver.run(gpu, 100, memory=60 * GIB, sm=80)


def test_a_foreign_process_that_appears_mid_run(machine: Machine):
    serve(machine)
    machine.run()
    assert machine.value("gpu_foreign_memory_bytes") == 0
    assert machine.value("gpu_foreign_sm_ratio") == 0
    machine.process(200, "/usr/bin/python3", "/home/someone/train.py", "--secret", "hunter2")
    machine.driver.run(0, 200, memory=5 * GIB, sm=35)
    machine.run(after=15)
    assert machine.value("gpu_foreign_memory_bytes") == 5 * GIB
    assert machine.value("gpu_foreign_sm_ratio") == 0.35
    assert machine.value("gpu_foreign_memory_bytes", 1) == 0
    assert machine.series("gpu_process_memory_bytes") == {
        (machine.uuid(0), "VLLM::EngineCore", "own"): 60 * GIB,
        (machine.uuid(0), "train.py", "foreign"): 5 * GIB,
    }
    assert machine.series("gpu_process_sm_ratio")[machine.uuid(0), "train.py", "foreign"] == 0.35
    assert "hunter2" not in machine.page()
    machine.driver.gpu(0).processes = 1
    machine.run(after=15)
    assert machine.value("gpu_foreign_memory_bytes") == 0
    assert len(machine.series("gpu_process_memory_bytes")) == 1


def test_one_look_a_pass_is_shared(machine: Machine):
    serve(machine)
    machine.run()
    calls = machine.fleet.library.statistics.calls
    assert calls["nvmlDeviceGetComputeRunningProcesses"][0] == 8
    # However soon the next pass comes (--slow 1): what it tells is of its own moment.
    machine.run(after=0.25)
    assert calls["nvmlDeviceGetComputeRunningProcesses"][0] == 16


def test_slow_fields_are_read_once_a_pass_and_anew_in_the_next(machine: Machine):
    machine.run(group="slow")
    calls = machine.fleet.library.statistics.calls
    once = calls["nvmlDeviceGetFieldValues"][0]
    assert once == 8
    machine.run(after=1, group="slow")
    assert calls["nvmlDeviceGetFieldValues"][0] == 2 * once


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (("/usr/bin/vllm", "serve", "m"), True),
        (("/opt/venv/bin/python3.12", "/opt/venv/bin/vllm", "serve", "m"), True),
        (("python", "-u", "-m", "vllm.entrypoints.openai.api_server"), True),
        (("python3", "-m", "sglang.launch_server"), True),
        (("sglang::scheduler_TP0",), True),
        (("tritonserver",), True),
        (("python", "bench_vllm.py"), False),
        (("python", "train.py", "--data", "/srv/vllm/data"), False),
        (("python", "-c", "import vllm"), False),
        (("./gpu_burn",), False),
    ],
)
def test_engines_are_known_by_name(machine: Machine, command, own):
    machine.process(100, *command)
    machine.driver.run(0, 100, memory=GIB)
    machine.run()
    assert machine.value("gpu_foreign_memory_bytes") == (0 if own else GIB)


def test_descendants_and_container_mates_of_an_engine_are_own(machine: Machine):
    serve(machine)
    machine.process(300, "/usr/bin/vllm", "serve")
    machine.process(301, "python", "-c", "from multiprocessing.spawn import spawn_main", parent=300)
    machine.process(302, "python", "helper.py", cgroup=DOCKER)
    machine.process(303, "python", "other.py", cgroup="/user.slice")
    for pid in (301, 302, 303):
        machine.driver.run(1, pid, memory=GIB)
    machine.run()
    owners = {labels[1]: labels[2] for labels in machine.series("gpu_process_memory_bytes")}
    assert owners == {"VLLM::EngineCore": "own", "python": "own", "helper.py": "own", "other.py": "foreign"}


@pytest.mark.parametrize("pattern", ["my-?server", r"model-\d+", "serving.slice"])
def test_own_by_title_command_line_or_cgroup(machine: Machine, pattern):
    machine.start(own=(pattern,))
    machine.process(100, "/opt/myserver", "--model", "model-7", cgroup="/serving.slice/x")
    machine.driver.run(0, 100, memory=GIB)
    machine.run()
    assert machine.value("gpu_foreign_memory_bytes") == 0


def test_beyond_the_top_they_are_other_with_their_owner(machine: Machine):
    machine.start(top_n=2)
    serve(machine)
    for number in range(12):
        machine.process(200 + number, "python", f"job{number}.py")
        machine.driver.run(0, 200 + number, memory=(number + 1) * GIB, sm=1)
    machine.run()
    assert machine.series("gpu_process_memory_bytes") == {
        (machine.uuid(0), "VLLM::EngineCore", "own"): 60 * GIB,
        (machine.uuid(0), "job11.py", "foreign"): 12 * GIB,
        (machine.uuid(0), "other", "foreign"): 66 * GIB,
    }
    assert machine.value("gpu_foreign_memory_bytes") == 78 * GIB
    assert machine.value("gpu_foreign_sm_ratio") == pytest.approx(0.12)
    assert machine.value("gpu_processes", 0, "foreign") == 12


def test_pids_of_another_namespace_accuse_nobody(machine: Machine):
    machine.driver.run(0, 4_000_100, memory=GIB, sm=50)
    machine.driver.run(1, 4_000_200, memory=GIB, sm=50)
    machine.run()
    assert machine.series("gpu_pid_namespace_mismatch") == {(): 1.0}
    assert machine.value("gpu_foreign_memory_bytes") is None
    assert machine.value("gpu_foreign_sm_ratio") is None
    assert machine.series("gpu_process_memory_bytes")[machine.uuid(0), "unknown", "unknown"] == GIB
    machine.process(4_000_100, "vllm")
    machine.process(4_000_200, "vllm")
    machine.run(after=15)
    assert machine.series("gpu_pid_namespace_mismatch") == {(): 0.0}


def test_a_dead_pid_is_dropped_and_a_hidden_one_shows(machine: Machine):
    serve(machine)
    machine.driver.run(0, 999, memory=GIB)
    machine.run()
    assert machine.value("gpu_foreign_memory_bytes") == 0  # most likely it has just ended
    machine.run(after=15)
    assert machine.value("gpu_foreign_memory_bytes") == GIB  # it has not: it lives out of our sight
    assert machine.series("gpu_process_memory_bytes")[machine.uuid(0), "unknown", "foreign"] == GIB


def test_memory_that_the_driver_does_not_tell_is_absent(machine: Machine):
    serve(machine)
    machine.process(200, "train")
    machine.driver.run(0, 200, memory=(1 << 64) - 1, sm=10)
    machine.run()
    assert (machine.uuid(0), "train", "foreign") not in machine.series("gpu_process_memory_bytes")
    assert machine.value("gpu_foreign_memory_bytes") is None  # a sum without it would be too small
    assert machine.value("gpu_foreign_sm_ratio") == 0.1


def test_process_use_that_is_not_supported_is_absent(machine: Machine):
    serve(machine)
    machine.driver.rule("nvmlDeviceGetProcessUtilization", code=3)
    machine.run()
    assert machine.value("gpu_foreign_sm_ratio") is None
    assert machine.series("gpu_process_sm_ratio") == {}
    assert machine.value("gpu_foreign_memory_bytes") == 0


def test_use_by_pids_of_another_namespace_is_no_use_of_ours(machine: Machine):
    # Some drivers list container pids with memory and host pids with SM use.
    serve(machine)
    machine.driver.gpu(0).process[0].sm = 0
    machine.driver.run(0, 4_000_100, memory=0, sm=80)
    for _ in range(3):
        machine.run(after=15)
    assert machine.value("gpu_foreign_memory_bytes") == 0
    assert machine.value("gpu_foreign_sm_ratio") is None
    assert machine.series("gpu_process_sm_ratio") == {}


def test_a_clock_set_back_does_not_hide_use(machine: Machine):
    serve(machine)
    machine.driver.gpu(0).process[0].sampled = int((time.time() + 86_400) * 1e6)
    machine.run()
    machine.driver.gpu(0).process[0].sampled = 0
    machine.run(after=15)
    assert machine.series("gpu_process_sm_ratio")[machine.uuid(0), "VLLM::EngineCore", "own"] == 0.8


def test_samples_are_asked_for_since_the_last_one(machine: Machine):
    serve(machine)
    machine.driver.gpu(0).process[0].sampled = int(time.time() * 1e6)
    machine.run()
    labels = (machine.uuid(0), "VLLM::EngineCore", "own")
    assert machine.series("gpu_process_sm_ratio")[labels] == 0.8
    machine.run(after=15)  # nothing new: it used nothing since
    assert machine.series("gpu_process_sm_ratio")[labels] == 0
    assert machine.series("nvml_errors_total") == {}  # and that is no failure of the driver


@pytest.mark.parametrize(("cpus", "match", "ratio"), [("0-7", 1, 1), ("8-15", 0, 0), ("0-15", None, 0.5)])
def test_the_engine_near_or_far_from_its_gpu(machine: Machine, cpus, match, ratio):
    machine.place(0, 0, "0-7")
    machine.process(100, "vllm", cpus=cpus)
    machine.process(200, "train", cpus="8-15")  # where a neighbour runs is its own affair
    machine.driver.run(0, 100, memory=GIB)
    machine.driver.run(0, 200, memory=GIB)
    machine.run()
    assert machine.value("engine_numa_match") == match
    assert machine.value("engine_cpus_local_ratio") == ratio
    assert machine.value("gpu_numa_node") == 0
    assert machine.value("engine_numa_match", 1) is None  # nobody serves there


def test_the_worst_placed_process_decides(machine: Machine):
    machine.place(0, 0, "0-7")
    for pid, cpus in ((100, "0-7"), (101, "8-15")):
        machine.process(pid, "vllm", cpus=cpus)
        machine.driver.run(0, pid, memory=GIB)
    machine.run()
    assert machine.value("engine_numa_match") == 0


def test_without_sysfs_the_driver_tells_which_cpus_are_near(machine: Machine):
    machine.process(100, "vllm", cpus="8-15")
    machine.driver.run(0, 100, memory=GIB)
    machine.run()
    assert machine.value("engine_numa_match") == 0  # the stand-in puts GPU 0 near CPUs 0 to 7
    assert machine.value("gpu_numa_node") is None


def test_titles_hold_no_arguments():
    assert title(["/usr/bin/python3", "-u", "/srv/app/run.py", "--key", "s3cret"], "python3") == "run.py"
    assert title(["nginx: worker process"], "nginx") == "nginx:"
    assert title([], "kworker/0:1") == "kworker/0:1"
    assert title(["python3", "-c", "print('s3cret')"], "python3") == "python3"
    assert title(["x" * 200], "x") == "x" * 48
    assert title(["a\nb\x1b[31m"], "a") == "a?b?[31m"
    assert title([""], "") == "unknown"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("", None), ("a-b", None), ("1-b", None)],
)
def test_cpu_lists(text, cpus):
    assert parse_cpus(text) == cpus


def test_odd_files_in_proc_are_no_process(tmp_path):
    host = Host(tmp_path)
    folder = tmp_path / "proc" / "5"
    folder.mkdir(parents=True)
    assert host.process(5) is None
    for text in (b"", b"5 (", b"5 (x)", b"5 (x) S", b"5 (x) S -1", b"\xff\xfe"):
        (folder / "stat").write_bytes(text)
        assert host.process(5) is None, text
    (folder / "stat").write_bytes(b"5 (a) b) c) S 4 0")
    found = host.process(5)
    assert found is not None
    assert (found.title, found.parent) == ("a) b) c", 4)
