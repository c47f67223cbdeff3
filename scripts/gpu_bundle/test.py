#!/usr/bin/env python3
"""Tests the GPU bundle without a GPU and without its programs: run.sh on substitute scripts, the record and the page of
their output, and the counting of instructions.

The last line starts with PASSED or FAILED (exit status 1).
"""
import contextlib
import csv
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "backend-cuda")]
sys.dont_write_bytecode = True
import gpu_bundle
import page
import phases
import record
import sass
import trl_phase

TABLE = phases.load()
BENCH = """gemm 2048³: statistics on / off: 500.0 TFLOP/s; 505.0 TFLOP/s; 0.990; 0.030 ms: issue 4 %; took 1.10 of it
"""
BENCH_TABLE = """
| what | here | beside it | ratio | target | model |
|---|---|---|---|---|---|
| gemm 2048³: statistics on / off | 500.0 TFLOP/s | 505.0 TFLOP/s | 0.990 | ≥ 0.97, goal 0.99 | 0.030 ms |
| gemm 2048³: with statistics / cuBLASLt without | 400.0 TFLOP/s | 500.0 TFLOP/s | 0.800 | ≥ 0.85, goal 1.00 | |
| conv encoder.conv2 Weight: statistics on / off | 320.0 TFLOP/s | 322.0 TFLOP/s | 0.994 | ≥ 0.97, goal 0.99 | |
| segnet step: scaling on / off | 990.0 images/s | 1000.0 images/s | 0.990 | | |
| segnet: minutes of 16 000 iterations | 3.0 min |  | 3.000 | | |

Products without them, by mma.sync:

| what | here | beside it | ratio | target | model |
|---|---|---|---|---|---|
| gemm 2048³: statistics on / off | 100.0 TFLOP/s | 505.0 TFLOP/s | 0.100 | | |
"""
PEERS = """PyTorch 2.11
| what | cuDNN |
|---|---|
| conv encoder.conv2 Weight | 400.0 TFLOP/s |
| segnet step, PyTorch AMP | 900.0 images/s |
"""
WGPU = """
| what | here | beside it | ratio | by |
|---|---|---|---|---|
| gemm 2048³ f16 | 64000.0 GFLOP/s |  |  | cooperative 16x16x16 subgroup 32 |
| gemm 2048³ f16 / f32 multiply-adds | 25000.0 GFLOP/s | 50000.0 GFLOP/s | 0.500 | simt |
| gemm 2048³ f16: with counts / without | 60000.0 GFLOP/s | 64000.0 GFLOP/s | 0.938 | cooperative 16x16x16 subgroup 32 |
| conv 7×7 Weight | 20000.0 GFLOP/s |  |  | simt |
| cast, counts / copy by a kernel | 900.00 GB/s | 1000.00 GB/s | 0.900 |  |
| segnet step by wgpu, 12×360×480, 64 channels | 247.50 images/s |  |  | 48.5 ms; cooperative 16x16x16 subgroup 32 |
"""
SMI = "NVIDIA H100 80GB HBM3, 580.159.04, 700.00 W, 1980 MHz, 81559 MiB"
NCU = """"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"
"0","7","pool(PoolParams)","GPU Speed Of Light Throughput","Duration","us","12.5"
"0","7","pool(PoolParams)","GPU Speed Of Light Throughput","Elapsed Cycles","cycle","20,000"
"""


class Table(unittest.TestCase):
    def test_every_phase_has_a_command_and_every_command_a_phase(self):
        text = (HERE / "run.sh").read_text()
        commands = {line.split("(")[0].removeprefix("phase_") for line in text.splitlines() if line.startswith("phase_")}
        self.assertEqual(commands, {name.replace("-", "_") for name in TABLE})

    def test_paths_exist_and_needs_are_known(self):
        known = set(gpu_bundle.PROGRAMS) | set(gpu_bundle.SCRIPTS) | {"wheel", "burn"}
        for phase in TABLE.values():
            self.assertEqual([file for file in phase.files if not (phases.ROOT / file).exists()], [], phase.name)
            self.assertEqual(set(phase.programs) - known, set(), phase.name)
            self.assertLess(phase.seconds, phase.limit)
            # A command may take ten minutes.
            self.assertLessEqual(phase.limit, 550)
        for sources in [*gpu_bundle.SCRIPTS.values(), [source for source, _ in gpu_bundle.PYTHON_TESTS]]:
            self.assertEqual([source for source in sources if not (phases.ROOT / source).exists()], [])

    def test_a_digest_changes_with_the_files_of_a_phase(self):
        commits = subprocess.run(
            ["git", "log", "-2", "--format=%h", "--", "backend-cuda/src"], cwd=phases.ROOT, capture_output=True, text=True
        ).stdout.split()
        if len(commits) < 2:
            self.skipTest("a clone without history")
        now, before = (phases.digest(TABLE["tiles"], commit) for commit in commits)
        self.assertNotEqual(now, before)
        self.assertEqual(now, phases.digest(TABLE["tiles"], commits[0]))
        self.assertIsNone(phases.digest(TABLE["environment"]))

    def test_the_page_is_what_the_record_gives(self):
        self.assertEqual(page.PAGE.read_text(), page.render(record.RECORDS, TABLE), "run scripts/gpu_bundle/page.py")


class Bundle(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.out, self.records = self.folder / "out", self.folder / "records"
        for name in ["run.sh", "phases.tsv"]:
            shutil.copy(HERE / name, self.folder)
        (self.folder / "commit").write_text("abc1234-dirty\n")
        (self.folder / "bin").mkdir()
        for name in gpu_bundle.PROGRAMS:
            self.program(name, "echo fine")
        # Only these programs of the machine are available: neither Python nor tools of NVIDIA.
        self.path = self.folder / "tools"
        self.path.mkdir()
        for tool in "awk bash cat date dirname env grep head kill ls mkdir mktemp nproc rm sed sleep tail timeout uname".split():
            (self.path / tool).symlink_to(shutil.which(tool))

    def program(self, name, text):
        path = self.folder / ("tools" if name in ("nvidia-smi", "python3") else "bin") / name
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def run_bundle(self, *words, **environment):
        return subprocess.run(
            [self.folder / "run.sh", *words], env={"PATH": str(self.path), **environment}, capture_output=True, text=True
        )

    def statuses(self):
        lines = (self.out / "phases.txt").read_text().splitlines()
        return {line.split()[0]: int(line.split()[1]) for line in lines}

    def page(self):
        record.merge(self.records, self.out, TABLE)
        return page.render(self.records, TABLE)

    def on_a_card(self, commit="abc1234-dirty", card=SMI):
        (self.folder / "commit").write_text(commit + "\n")
        self.program("nvidia-smi", f"echo '{card}'")

    def test_every_phase_runs_whatever_the_others_do(self):
        self.program("cuda-conformance", "echo 'assertion failed: by 3'; exit 101")
        panic = "thread tasks panicked at tests/tasks.rs:87:9:\\n  by 2e-4\\ntest tasks ... FAILED\\ntest result: FAILED."
        self.program("wgpu-conformance", f"printf '{panic}'; exit 101")
        self.program("wgpu-tiles", "echo begun; sleep 60")
        self.program("cuda-tests", "kill -SEGV $$")
        self.run_bundle("environment", "suite", "tiles", "prove", "wgpu-suite", "wgpu-tiles", GRADSCALE_PHASE_SECONDS="1")
        self.assertEqual(
            self.statuses(), {"environment": 0, "prove": 0, "tiles": 139, "suite": 101, "wgpu-suite": 101, "wgpu-tiles": 124}
        )
        text = self.page()
        for part in ["| suite |", "FAILED (101): assertion failed: by 3", "FAILED (101): by 2e-4 |", "time limit: begun", "abc1234"]:
            self.assertIn(part, text)

    def test_all_phases_without_a_device(self):
        for name in gpu_bundle.PROGRAMS:
            self.program(name, "echo 'SKIPPED: no device 0: none is there'; exit 1")
        self.program("gradscale", "echo 'cuda: the library cuda is not installed'; exit 2")
        done = self.run_bundle()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.statuses()), list(TABLE))
        text = self.page()
        self.assertIn("**No GPU", text)
        self.assertEqual(text.count("not here: "), len(TABLE) - 1)
        self.assertNotIn("Never run", text)

    def test_a_phase_that_lacks_something_leaves_an_earlier_result(self):
        self.on_a_card()
        self.run_bundle("environment", "tiles")
        self.assertIn("| tiles | Has every tile of every product the bits of the definition? | passed |", self.page())
        self.program("cuda-tests", "echo 'no device'; exit 1")
        self.on_a_card("def5678-dirty", SMI.replace("H100 80GB HBM3", "T4"))
        self.run_bundle("environment", "tiles", "prove")
        text = self.page()
        self.assertRegex(text, r"\| tiles .* passed .* abc1234-dirty, H100")
        self.assertRegex(text, r"\| prove .* passed .* def5678-dirty, T4")

    def test_within_a_time(self):
        said = self.run_bundle("--within", "40")
        # Phases run in order, and a phase that does not fit the remaining time is passed over for later ones.
        order = list(self.statuses())
        self.assertEqual(order[0], "environment")
        self.assertNotIn("torch-modules", order)
        self.assertIn("still to run: torch-modules", said.stdout)
        for _ in range(40):
            said = self.run_bundle("--within", "600")
            if "still to run" not in said.stdout:
                break
        self.assertEqual(set(self.statuses()), set(TABLE))
        self.assertEqual(self.run_bundle("--within", "600").stdout, "")

    def test_what_is_on_record_at_this_commit_is_not_run_again_unless_it_is_named(self):
        (self.folder / "measured").write_text("baseline\nprove\n")
        self.run_bundle("--within", "60")
        self.assertNotIn("prove", self.statuses())
        self.assertIn("tiles", self.statuses())
        self.run_bundle("--within", "60", "prove")
        self.assertIn("prove", self.statuses())

    def test_the_plan_of_two_commands(self):
        printed = self.run_bundle("--plan").stdout
        first, second = printed.split("run.sh --within 200:")
        self.assertIn("run.sh --within 560:", first)
        planned = [line.split()[0] for line in printed.splitlines() if line.startswith("  ")]
        self.assertEqual(len(planned), len(set(planned)))
        left = printed.rsplit("not covered: ", 1)[1].split()
        self.assertEqual(set(planned) | set(left), set(TABLE))
        for part, room in ((first, 560), (second, 200)):
            total = sum(TABLE[line.split()[0]].seconds for line in part.splitlines() if line.startswith("  "))
            self.assertLessEqual(total, room)
        self.assertEqual(self.run_bundle("--plan", "suite").stdout.count("suite"), 1)
        self.assertFalse(self.out.exists())

    def test_a_phase_that_runs_again_counts_once(self):
        self.run_bundle("prove")
        self.program("gradscale-cuda", "exit 1")
        self.run_bundle("prove")
        self.assertEqual(len((self.out / "phases.txt").read_text().splitlines()), 1)
        self.assertEqual(self.statuses(), {"prove": 1})

    def stand_in_for_training(self, steps_of_a_command):
        """A program that trains so many steps of four in a command, or hangs after them until it is stopped."""
        (self.folder / "data/camvid-180x240").mkdir(parents=True, exist_ok=True)
        self.program("gradscale", rf"""
[[ $1 == train ]] || exit 0
while (($#)); do
    case $1 in --out) out=$2 ;; --resume) out=$2 && resumed=1 ;; esac
    shift
done
[[ ${{resumed-}} ]] || mkdir "$out" || exit 9
for i in {{1..4}}; do
    grep -q '"iteration":'"$i," "$out/log.jsonl" 2>/dev/null && continue
    ((++taken > {steps_of_a_command})) && sleep 60
    [[ $i == 4 ]] && scores=',"scores":{{"global_accuracy":0.5,"miou":0.25}}'
    loss=$i.5 && [[ $i == 3 ]] && loss=null
    printf '{{"iteration":%s,"loss":%s,"seconds":1%s}}\n' "$i" "$loss" "${{scores-}}" >>"$out/log.jsonl"
done""")

    def test_trainings_that_are_cut_off_go_on(self):
        self.on_a_card()
        self.stand_in_for_training(3)
        run = lambda limit, seeds="0": self.run_bundle("environment", "table3-small", GRADSCALE_PHASE_SECONDS=str(limit), GRADSCALE_SEEDS=seeds)
        # Twenty of the seconds are for the last checkpoint.
        run(22)
        self.assertEqual(self.statuses()["table3-small"], 75)
        self.assertIn("to be resumed: dynamic, seed 0", (self.out / "table3-small.txt").read_text())
        self.assertIn("| not finished: to be resumed: dynamic, seed 0 |", self.page())
        # The command after it goes on with what is not finished, and so does one that takes what was not measured.
        self.assertEqual(record.measured_at_head(TABLE, self.records), [])
        self.stand_in_for_training(4)
        self.run_bundle("--within", "550", "table3-small", GRADSCALE_SEEDS="0")
        self.assertEqual(self.statuses()["table3-small"], 0)
        text = (self.out / "table3-small.txt").read_text()
        for name in ["dynamic", "torch", "zhao", "gs-authors", "gs"]:
            self.assertIn(f"| {name}-0 | 4 | 25.00 | 4.50000 |", text)
        self.assertIn("| zhao-0 | 4 | 25.00 | 4.50000 | abc1234-dirty, H100 80GB HBM3 |", self.page())
        # Another visit with another seed keeps these rows.
        shutil.rmtree(self.out)
        run(60, "1")
        text = self.page()
        for row in ["| zhao-0 | 4 |", "| zhao-1 | 4 |"]:
            self.assertIn(row, text)

    def test_a_training_that_fails_ends_its_phase(self):
        self.on_a_card()
        (self.folder / "data/camvid-180x240").mkdir(parents=True)
        self.program("gradscale", "echo 'device 0 is out of memory: failed'; exit 2")
        self.run_bundle("environment", "table3-small")
        self.assertEqual(self.statuses()["table3-small"], 2)
        self.assertIn("| FAILED (2): device 0 is out of memory: failed |", self.page())

    def test_experiments_get_their_seeds_and_time(self):
        self.program("python3", 'echo "$*"')
        self.run_bundle("natural-lock", GRADSCALE_PHASE_SECONDS="400", GRADSCALE_SEEDS="3 4")
        self.assertIn("gpu.py rare_reward --seconds 320 --seeds 3 4", (self.out / "natural-lock.txt").read_text())
        self.run_bundle("--rehearse", "natural-speech")
        self.assertIn("gpu.py short_recordings --device cpu --small --seconds", (self.out / "natural-speech.txt").read_text())

    def test_windows_of_all_networks(self):
        self.program("gradscale", 'echo "$*"; [[ $* != *vgg-16* ]]')
        self.run_bundle("windows")
        text = (self.out / "windows.txt").read_text()
        # One that fails does not stop the others.
        self.assertEqual(self.statuses()["windows"], 1)
        self.assertEqual(text.count("window --device cuda:0 --network"), 17)
        self.assertEqual(text.count("--size paper\n"), 2 * 17)

    def test_words_that_are_no_phases(self):
        for words in [["sweet"], ["--what"], ["--within"], ["--within", "soon"]]:
            done = self.run_bundle(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertTrue(done.stderr, words)
        self.assertFalse(self.out.exists())

    def test_figures_beside_targets_and_peers(self):
        self.on_a_card()
        self.program("cuda-bench", f"cat <<'END'\n{BENCH}{BENCH_TABLE}END")
        self.run_bundle("environment", "bench-products")
        (self.out / "peers.txt").write_text(PEERS)
        (self.out / "phases.txt").open("a").write("peers 0 9\n")
        text = self.page()
        for row in [
            "| gemm 2048³: statistics on / off | 500.0 TFLOP/s | 505.0 TFLOP/s | 0.990 | ≥ 0.97, goal 0.99 | goal | abc1234-dirty, H100 80GB HBM3 |",
            "| gemm 2048³: with statistics / cuBLASLt without | 400.0 TFLOP/s | 500.0 TFLOP/s | 0.800 | ≥ 0.85, goal 1.00 | MISSED |",
            "| conv encoder.conv2 Weight: with statistics / cuDNN | 320.0 TFLOP/s | 400.0 TFLOP/s | 0.800 | ≥ 0.70, goal 1.00 | holds |",
            "| segnet step: half with scaling / PyTorch AMP | 990.0 images/s | 900.0 images/s | 1.100 | ≥ 1.20, goal 1.60 | MISSED |",
            "| segnet: minutes of 16 000 iterations | 3.0 min |  | 3.000 | ≤ 6.00, goal 2.50 | holds |",
            "| gemm 2048³: statistics on / off | 500.0 TFLOP/s | 505.0 TFLOP/s | 0.990 | 0.030 ms | abc1234-dirty, H100 80GB HBM3 |",
            "Products without them, by mma.sync:",
        ]:
            self.assertIn(row, text)
        self.assertEqual(text.split("## Beside the targets")[1].split("##")[0].count("gemm 2048³: statistics on / off"), 1)
        self.assertIn("Not measured: gemm *: with statistics / cuBLASLt and a pass for them; conv *", text)

    def test_the_fastest_variant_of_a_peer_is_the_baseline(self):
        self.on_a_card()
        self.program("cuda-bench", f"cat <<'END'\n{BENCH_TABLE}END")
        self.run_bundle("environment", "bench-segnet")
        for name, speed in (("peers", "900.0"), ("peers-compiled", "600.0")):
            (self.out / f"{name}.txt").write_text(PEERS.replace("900.0", speed))
            (self.out / "phases.txt").open("a").write(f"{name} 0 9\n")
        self.assertIn("PyTorch AMP | 990.0 images/s | 900.0 images/s | 1.100", self.page())

    def test_figures_of_wgpu_beside_cuda_and_burn(self):
        self.on_a_card()
        self.program("wgpu-bench", f"cat <<'END'\n{WGPU}END")
        self.program("cuda-bench", f"cat <<'END'\n{BENCH}{BENCH_TABLE}END")
        for name, kernels, speed in (("burn-wgsl", "WGSL", "20000.0"), ("burn-spirv", "SPIR-V", "40000.0")):
            self.program(name, f"echo '| what | burn, {kernels} |'; echo '|---|---|'; echo '| gemm 2048³ f16 | {speed} GFLOP/s |'; echo; echo done")
        self.run_bundle("environment", "bench-products", "bench-segnet", "wgpu-bench", "wgpu-bench-simt", "burn")
        section = self.page().split("## Beside the targets")[1].split("\n## ")[0]
        for row in [
            # 60 TFLOP/s beside CUDA's 100, and beside the faster of burn's programs.
            "| wgpu gemm 2048³ by matrices / CUDA's mma.sync | 60000.0 GFLOP/s | 100.0 TFLOP/s | 0.600 | ≥ 0.60, goal 1.00 | holds |",
            "| wgpu gemm 2048³ f16 / burn | 64000.0 GFLOP/s | 40000.0 GFLOP/s | 1.600 | ≥ 1.00, goal 1.20 | goal |",
            "| wgpu segnet step by matrices / CUDA | 247.50 images/s | 990.0 images/s | 0.250 | ≥ 0.33, goal 0.43 | MISSED |",
            "| wgpu cast, counts / copy by a kernel | 900.00 GB/s | 1000.00 GB/s | 0.900 | ≥ 0.85, goal 0.95 | holds |",
        ]:
            self.assertIn(row, section)
        # The share of a product by tiles is that of the phase without matrices, where this bench printed it too.
        self.assertEqual(section.count("| wgpu gemm 2048³ f16 / f32 multiply-adds |"), 1)
        # A product by tiles is not compared with kernels for matrices, nor a step by matrices called one by tiles.
        self.assertNotIn("wgpu conv", section.split("Not measured")[0])
        self.assertNotIn("step by tiles", section.split("Not measured")[0])

    def test_without_burn_its_phase_says_so(self):
        self.on_a_card()
        self.run_bundle("environment", "burn")
        self.assertEqual(self.statuses()["burn"], 0)
        self.assertIn("| burn |", self.page())
        self.assertIn("not here: burn's program", self.page())

    def test_a_short_run_replaces_only_the_rows_that_it_measured(self):
        self.on_a_card()
        self.program("cuda-bench", f"cat <<'END'\n{BENCH}{BENCH_TABLE}END")
        self.run_bundle("environment", "bench-products", "bench-elements")
        self.page()
        # Cut off after its first line.
        self.on_a_card("def5678-dirty")
        self.program("cuda-bench", f"echo '{BENCH.replace('500.0', '510.0').strip()}'; sleep 60")
        shutil.rmtree(self.out)
        self.run_bundle("environment", "bench-products", GRADSCALE_PHASE_SECONDS="1")
        text = self.page()
        self.assertIn("| gemm 2048³: statistics on / off | 510.0 TFLOP/s | 505.0 TFLOP/s | 0.990 | ≥ 0.97, goal 0.99 | goal | def5678-dirty, H100 80GB HBM3 |", text)
        self.assertRegex(text, r"\| bench-products .* time limit: gemm .* def5678-dirty, H100")
        section = text.split("## bench-products")[1].split("##")[0]
        self.assertIn("| conv encoder.conv2 Weight: statistics on / off | 320.0 TFLOP/s | 322.0 TFLOP/s | 0.994 |  | abc1234-dirty, H100 80GB HBM3 |", section)
        self.assertRegex(text, r"\| bench-elements .* passed .* abc1234-dirty")
        # Ended: rows that it no longer has go.
        self.program("cuda-bench", f"echo '{BENCH.strip()}'")
        shutil.rmtree(self.out)
        self.run_bundle("environment", "bench-products")
        self.assertNotIn("320.0 TFLOP/s", self.page().split("## bench-products")[1].split("##")[0])

    def test_a_peer_on_another_kind_of_card_is_not_compared(self):
        self.on_a_card()
        self.program("cuda-bench", f"cat <<'END'\n{BENCH_TABLE}END")
        self.run_bundle("environment", "bench-segnet")
        self.page()
        self.on_a_card("def5678-dirty", SMI.replace("H100", "H200"))
        shutil.rmtree(self.out)
        self.run_bundle("environment")
        (self.out / "peers.txt").write_text(PEERS)
        (self.out / "phases.txt").open("a").write("peers 0 9\n")
        self.assertNotIn("PyTorch AMP |", self.page().split("## Beside the targets")[1].split("##")[0])

    def test_unpublished_phases_are_recorded_only(self):
        hidden = next(phase for phase in TABLE.values() if not phase.is_published)
        self.on_a_card()
        self.run_bundle("environment")
        (self.out / f"{hidden.name}.txt").write_text("| model | ms |\n|---|---|\n| ResNet-50 | 50.0 |\n")
        (self.out / "phases.txt").open("a").write(f"{hidden.name} 0 9\n")
        self.assertNotIn("| ResNet-50", self.page())
        with (self.records / "figures.csv").open(newline="") as file:
            self.assertEqual([row["cells"] for row in csv.DictReader(file)], ["ResNet-50 | 50.0"])

    def test_a_table_that_is_printed_row_by_row(self):
        text = "| what | PyTorch |\n|---|---|\nnetwork a: 7 parameters\n| a eager | 1.0 images/s |\n| a | 1.0 images/s |\nlater\n| a | 2.0 images/s |\n"
        rows = [["a eager", "1.0 images/s"], ["a", "2.0 images/s"]]
        self.assertEqual(record.figures("networks-torch", text), [("", ["what", "PyTorch"], rows)])

    def test_networks_beside_pytorch(self):
        self.on_a_card()
        table = "| what | here | beside it | ratio | target | model |\n|---|---|---|---|---|---|\n| network dcgan step: with scaling | 30.0 images/s | | | | |"
        self.program("cuda-bench", f"cat <<'END'\n{table}\nEND")
        self.run_bundle("environment", "networks")
        (self.out / "networks-torch.txt").write_text("| what | PyTorch | a step |\n|---|---|---|\n| network dcgan, PyTorch AMP | 20.0 images/s | 5 ms |\n")
        (self.out / "phases.txt").open("a").write("networks-torch 0 9\n")
        record.merge(self.records, self.out, TABLE)
        judged = page.judged_rows(page.rows_of(self.records, "figures"))
        self.assertEqual([row[:4] for row in judged], [("network dcgan step: with scaling / PyTorch AMP", "30.0 images/s", "20.0 images/s", 1.5)])

    def test_metrics_of_ncu(self):
        self.assertEqual(record.figures("ncu", NCU), [("", ["what", "here"], [["pool: Duration", "12.5 us"]])])
        self.assertEqual(record.figures("ncu", "no launch of pool was profiled\n"), [])

    def test_a_rehearsal_is_not_recorded(self):
        self.program("gradscale", "echo 'CUDA 0, emulated, sm_90, 1 multiprocessors'")
        self.program("cuda-bench", f"echo \"$*\"; cat <<'END'\n{BENCH_TABLE}END")
        self.run_bundle("--rehearse", "environment", "bench-products")
        self.assertIn("--small copy gemm conv", (self.out / "bench-products.txt").read_text())
        text = self.page()
        self.assertIn("An emulated device", text)
        self.assertNotIn("No GPU", text)
        self.assertNotIn("## Beside the targets", text)
        self.assertRegex(text, r"\| bench-products .* rehearsed .* abc1234-dirty, emulated")
        done = subprocess.run([HERE / "record.py", self.out, "--page", self.folder / "page.md"], capture_output=True, text=True)
        self.assertEqual((done.returncode, "an emulated device: not recorded" in done.stderr), (1, True))
        self.assertFalse((self.folder / "page.md").exists())

    def test_python_phases_are_rehearsed_on_the_cpu(self):
        self.program("python3", 'echo "$*"')
        names = ["baseline", "torch-speed", "torch-trl", "networks-torch", "peers", "peers-compiled"]
        for words, is_on_cpu in [(["--rehearse"], True), ([], False)]:
            self.run_bundle(*words, *names)
            for name in names:
                self.assertEqual(".py --device cpu --small" in (self.out / f"{name}.txt").read_text(), is_on_cpu, name)

    def test_a_rehearsal_on_a_card_is_not_recorded_either(self):
        self.on_a_card()
        self.run_bundle("--rehearse", "environment", "tiles")
        self.assertRegex(self.page(), r"\| tiles .* rehearsed .* abc1234-dirty, H100")
        self.assertEqual(record.measured_at_head({"tiles": TABLE["tiles"]}, self.records), [])
        done = subprocess.run([HERE / "record.py", self.out, "--page", self.folder / "page.md"], capture_output=True, text=True)
        self.assertEqual((done.returncode, "a rehearsal: not recorded" in done.stderr), (1, True))
        self.assertFalse((self.folder / "page.md").exists())

    def test_a_driver_of_the_cpu_beside_a_card_is_not_recorded(self):
        self.on_a_card()
        self.program("wgpu-bench", "echo llvmpipe; echo 'rehearsal: few runs'; printf '| what | here |\\n|---|---|\\n| gemm | 0.1 GFLOP/s |\\n'")
        self.run_bundle("environment", "tiles", "wgpu-bench")
        with mock.patch.object(record, "RECORDS", self.records), contextlib.redirect_stderr(io.StringIO()) as said:
            text = self.page()
        self.assertEqual(said.getvalue(), "rehearsed, and so not recorded: wgpu-bench\n")
        self.assertRegex(text, r"\| tiles .* passed .* abc1234-dirty, H100")
        self.assertNotIn("| gemm |", text)
        self.assertIn("wgpu-bench", text.split("Never run on a GPU: ")[1])

    def test_an_omitted_part_excuses_no_failure(self):
        self.on_a_card()
        for status, verdict in [("0", "not here: SKIPPED: no cooperative matrices"), ("101", "FAILED (101): test tiles ... FAILED")]:
            self.program("wgpu-tiles", f"printf 'SKIPPED: no cooperative matrices\\ntest tiles ... FAILED\\n'; exit {status}")
            self.run_bundle("environment", "wgpu-tiles")
            self.assertIn(f"| {verdict} |", self.page())

    def test_a_phase_that_lacks_a_part_records_the_others(self):
        table = "| what | here |\n|---|---|\n| copy on the device | 2800 GB/s |"
        self.on_a_card()
        self.program("cuda-bench", f"cat <<'END'\n{table}\nEND")
        self.program("python3", "[[ $1 != peers.py ]] || printf '| what | PyTorch |\\n|---|---|\\n| copy of 1 GiB | 3000 GB/s |\\n'")
        self.run_bundle("environment", "baseline")
        self.page()
        # Runs at a later commit, without Python.
        (self.path / "python3").unlink()
        self.on_a_card("def5678-dirty")
        self.program("cuda-bench", f"cat <<'END'\n{table.replace('2800', '2900')}\nEND")
        shutil.rmtree(self.out)
        self.run_bundle("environment", "baseline")
        text = self.page()
        self.assertIn("| copy on the device | 2900 GB/s | def5678-dirty, H100 80GB HBM3 |", text)
        self.assertNotIn("2800", text)
        self.assertIn("| copy of 1 GiB | 3000 GB/s | abc1234-dirty, H100 80GB HBM3 |", text)
        self.assertRegex(text, r"\| baseline .* passed .* abc1234-dirty")

    def test_a_python_without_a_module_is_named(self):
        for phase, module in [("torch-stores", "hypothesis"), ("torch-speed", "numpy"), ("peers", "torch")]:
            self.program("python3", f'[[ "$*" != *"import {module}" ]] || exit 1')
            self.run_bundle("environment", phase)
            self.assertIn(f"not here: no Python with {module} |", self.page())
            self.assertEqual(self.statuses()[phase], 0)

    def test_what_trl_needs_is_named_and_what_is_there_is_trained(self):
        """Rows of a training that needs no TRL are recorded, and the phase does not count as passed."""
        rows = {"plain loop, float32": ([2.0, 1.0], None), "plain loop, gradscale": ([2.0, 1.1], mock.Mock(sites=[1, 2], skipped=0))}
        with_trl = {"SFTTrainer, gradscale": ([2.0, 1.2], mock.Mock(sites=[1], skipped=0))}
        no_trl = "not here: no Python with trl, so only a plain loop trained a GPT-2 of transformers"
        for lacking, expected, names in [(["trl"], no_trl, rows), ([], "", rows | with_trl), (["trl", "transformers"], "not here: no Python with transformers", {})]:
            example = mock.Mock(main=lambda steps: with_trl["SFTTrainer, gradscale"])
            loop = lambda steps, device, is_scaled: rows[f"plain loop, {'gradscale' if is_scaled else 'float32'}"]
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), mock.patch.object(sys, "argv", ["trl_phase.py", "--device", "cpu"]), \
                    mock.patch.object(trl_phase, "missing", lambda names: lacking), mock.patch.object(trl_phase, "plain_loop", loop), \
                    mock.patch.dict(sys.modules, {"torch": mock.Mock(), "trl_sft": example}):
                trl_phase.main()
            self.assertTrue(printed.getvalue().startswith(expected), printed.getvalue())
            found = [row[0] for _, _, table in record.figures("torch-trl", printed.getvalue()) for row in table]
            self.assertEqual(found, list(names))
            verdict = record.result("torch-trl", 0, printed.getvalue())
            self.assertTrue(verdict.startswith("not here: no Python" if lacking else "passed"), verdict)

    def test_a_training_that_did_not_learn_fails(self):
        for losses, skipped in [([2.0, 1.9], 0), ([2.0, 1.0], 1), ([2.0, float("nan")], 0)]:
            with contextlib.redirect_stdout(io.StringIO()), mock.patch.dict(sys.modules, {"torch": mock.Mock()}):
                self.assertFalse(trl_phase.train("some", lambda: (losses, mock.Mock(sites=[], skipped=skipped)), "cpu"))

    def test_packages_that_the_machine_lacks_are_carried(self):
        wheels = self.folder / "wheels"
        wheels.mkdir()
        with zipfile.ZipFile(wheels / "made_up-1-py3-none-any.whl", "w") as archive:
            archive.writestr("made_up/__init__.py", "VALUE = 3\n")
        gpu_bundle.add_packages(self.folder, wheels)
        self.assertEqual((self.folder / "packages/made_up/__init__.py").read_text(), "VALUE = 3\n")
        (wheels / "made_up-1-py3-none-any.whl").unlink()
        with self.assertRaisesRegex(SystemExit, "no wheels"):
            gpu_bundle.add_packages(self.folder, wheels)

    def test_tests_that_pytest_would_skip_have_not_passed(self):
        self.program("python3", '[[ "$*" != *is_available* ]] || exit 1')
        (self.folder / "tests").mkdir()
        self.on_a_card()
        for words, verdict in [([], "not here: PyTorch sees no GPU"), (["--rehearse"], "rehearsed")]:
            shutil.rmtree(self.out, ignore_errors=True)
            shutil.rmtree(self.records, ignore_errors=True)
            self.run_bundle(*words, "environment", "torch-stores")
            self.assertRegex(self.page(), rf"\| torch-stores .* \| {verdict} \|")

    def test_an_emulated_device_has_time_to_prove_a_kernel(self):
        self.program("gradscale-cuda", "echo \"$1 within $GRADSCALE_PROVE_SECONDS s\"")
        self.run_bundle("prove")
        self.assertEqual((self.out / "prove.txt").read_text(), "prove within 20 s\n")
        self.run_bundle("--rehearse", "prove")
        self.assertIn("\nprove within 900 s\n", (self.out / "prove.txt").read_text())

    def test_a_device_whose_line_is_broken_is_one_device(self):
        device = "llvmpipe (LLVM 15), vulkan, Mesa 22\n    (--device wgpu:0, a driver on the CPU)\n  timestamps yes\n" + " " * 29 + "more\n"
        self.program("gradscale", f"cat <<'END'\n{device}END")
        self.run_bundle("environment")
        self.page()
        with (self.records / "machines.csv").open(newline="") as file:
            machine = next(csv.DictReader(file))["machine"]
        self.assertTrue(machine.endswith("; llvmpipe (LLVM 15), vulkan, Mesa 22 (--device wgpu:0, a driver on the CPU)"), machine)

    def test_what_came_back_is_broken(self):
        self.out.mkdir()
        (self.out / "phases.txt").write_text("environment 0 1\nsuite 1 4\nprove 0\ntiles 0 3\nbench-products 0 2\npeers 0")
        (self.out / "environment.txt").write_bytes(b"driver 580 \xff\xfe\n")
        (self.out / "tiles.txt").write_text("")
        (self.out / "bench-products.txt").write_text("| what | here\n|---|\n| gemm 1024³: statistics on / off |\n|\n")
        text = self.page()
        self.assertIn("| suite | Does the conformance suite pass with all kernels? | FAILED (1): FAILED: its file did not come back | 4 |", text)
        self.assertIn("| tiles | Has every tile of every product the bits of the definition? | passed | 3 |", text)
        (self.out / "phases.txt").unlink()
        done = subprocess.run([HERE / "record.py", self.out, "--records", self.records], capture_output=True, text=True)
        self.assertEqual((done.returncode, "phases.txt does not exist" in done.stderr), (2, True))


# A round with a block that few values need, which stores twice if one branch is not taken.
CODE = """
	.section	.text.kernel,"ax",@progbits
.L_x_0:
        /*0000*/                   LDG.E.128 R8, desc[UR4][R2.64] ;
        /*0010*/              @P0  BRA `(.L_x_1) ;
        /*0020*/                   VIMNMX3.U32 R4, R5, R6, R7, PT ;
        /*0030*/                   IADD3 R1, R1, R2, R3 ;
        /*0040*/                   IADD3 R1, R1, R2, R3 ;
.L_x_1:
        /*0050*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0060*/              @P1  BRA `(.L_x_0) ;
        /*0070*/                   HGMMA.64x256x16.F32 R24, gdesc[UR4], R24 ;
        /*0080*/                   BRA `(.L_x_3) ;
.L_x_2:
        /*0090*/                   FADD R1, R1, R2 ;
.L_x_3:
        /*00a0*/                   HGMMA.64x256x16.F32 R24, gdesc[UR8], R24 ;
        /*00b0*/             @!P2  BRA `(.L_x_2) ;
        /*00c0*/                   EXIT ;
"""


class Instructions(unittest.TestCase):
    def setUp(self):
        self.code = sass.instructions(CODE)["kernel"]

    def words(self, *asked, **more):
        way = sass.shortest(self.code, *asked, **more)
        return way and [self.code[at][1].split()[0].split(".")[0] for at in way]

    def test_the_shortest_round_that_does_what_is_asked(self):
        self.assertEqual(len(self.code), 13)
        self.assertEqual(self.words({sass.STORE16: 1}), ["STG", "BRA", "LDG", "BRA"])
        with_maxima = self.words({sass.STORE16: 1, sass.INTEGER_MAX: 1})
        self.assertEqual(sorted(with_maxima), sorted(["LDG", "BRA", "VIMNMX3", "IADD3", "IADD3", "STG", "BRA"]))
        self.assertIsNone(self.words({sass.STORE16: 1}, [sass.LOAD16]))
        self.assertIsNone(self.words({sass.ATOMIC: 1}))
        self.assertEqual(self.words({sass.PRODUCT: 1}), ["HGMMA", "BRA", "FADD"])
        # From the first block to the end of the kernel.
        self.assertEqual(len(self.words({sass.STORE16: 1}, start=0, ends={-1})), 9)

    def test_loops_in_each_other(self):
        # Over tiles (5 instructions more), over warps whose sums are taken (4 more), over pairs of eights (26).
        store = ["VIMNMX3.U32 R1, R2, R3, R4, PT"] * 14 + ["F2FP.F16.F32.PACK_AB R1, R2, R3"] * 8 + ["STG.E.128 [R2.64], R4"] * 2
        lines = ["HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", "@P0 BRA `(.L_x_0)", ".L_x_1:", "MUFU.RCP R1, R2", "IADD3 R1, R1, R2, R3"]
        lines += [".L_x_2:", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R1", "IADD3 R1, R1, R2, R3", ".L_x_3:", "LDS.128 R4, [R1]"]
        lines += [*store, "@P1 BRA `(.L_x_3)", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR4], RZ", "@P2 BRA `(.L_x_2)"]
        lines += ["IADD3 R1, R1, R2, R3", "NOP", "@P3 BRA `(.L_x_1)", "EXIT"]
        text = [line if line.startswith(".L") else f"        /*0000*/ {line} ;" for line in [".L_x_0:", *lines]]
        code = sass.instructions("\n".join(['\t.section\t.text.kernel,"ax",@progbits', *text]))["kernel"]
        self.assertEqual(sass.inner(code), (2, 1, 0))
        rounds, eights, warps = 3, 2, 2
        whole = 5 + warps * (4 + rounds * 26)
        self.assertAlmostEqual(sass.apart(code, 90, warps, rounds, eights), whole / (8 * eights * warps * rounds))

    def test_files_of_before_take_the_place_of_those_of_now(self):
        source = '// -arch\n#define A 1u\n#line 1 "ptx.cuh"\nint now;\n#line 1 "unary.cu"\nint mine;\n'
        found = sass.with_files(source, lambda name, own: "int then;\n" if name == "ptx.cuh" else own)
        self.assertEqual(found, source.replace("int now;", "int then;"))


if __name__ == "__main__":
    if "--fetch" not in sys.argv:
        result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]))
        print("PASSED: the GPU bundle, without its programs" if result.wasSuccessful() else "FAILED: the GPU bundle")
        sys.exit(not result.wasSuccessful())
