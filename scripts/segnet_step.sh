#!/usr/bin/env bash
# Time of one training step of SegNetBasic on the CPU, and of PyTorch's f32 on the same cores if Python has torch.
#
#   scripts/segnet_step.sh [STEPS]      16 channels, 12 images of 90×120, as in the README's table
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
steps=${1:-20}
data=${GRADSCALE_DATA:?names the directory with camvid-90x120}/camvid-90x120
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cargo build --profile measured --quiet -p gradscale-cli
torch=none
if python3 -c 'import torch' 2>/dev/null; then
    torch=$(python3 scripts/torch_segnet.py 16 12 90 120 "$steps")
else
    echo "no baseline: pip install torch" >&2
fi
cargo run --profile measured --quiet -p gradscale-cli -- compare --data "$data" --batch 12 --iters "$steps" --methods fp32,fp16,gs --out "$out/run" >/dev/null
python3 - "$out/run/results.json" "$torch" <<'PYTHON'
import json, sys
results, torch = json.load(open(sys.argv[1])), sys.argv[2]
print(f"{results['machine']}, commit {results['commit']}")
if torch != "none":
    print(f"{'PyTorch f32':12} {float(torch):7.0f} ms")
for run in results["runs"]:
    ms = 1000 * run["seconds"] / len(run["loss"])
    ratio = "" if torch == "none" else f"   {ms / float(torch):.2f} × PyTorch's f32"
    print(f"{run['method']:12} {ms:7.0f} ms{ratio}")
PYTHON
