"""cuDNN's convolutions and PyTorch's training step, for the table of the CUDA bench. Prints Markdown."""

import sys

try:
    import torch
except ImportError:
    sys.exit("PyTorch is not installed")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU")

torch.backends.cudnn.benchmark = True
# f32 is f32 here: convolutions would be TF32 by default.
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def median(run, runs=21):
    for _ in range(5):
        run()
    times = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[runs // 2]


print(f"\nPyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, channels last, benchmark mode\n")
print("| what | cuDNN |\n|---|---|")
for name, h, w, c in [
    ("encoder.conv1", 360, 480, 3),
    ("decoder.conv1", 360, 480, 64),
    ("encoder.conv2", 180, 240, 64),
    ("encoder.conv3", 90, 120, 64),
    ("encoder.conv4", 45, 60, 64),
]:
    x = torch.randn(12, c, h, w, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    weight = torch.randn(64, c, 7, 7, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    dy = torch.randn(12, 64, h, w, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    flops = 2 * 12 * h * w * 64 * 49 * c

    def back(mask):
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, weight, None, [1, 1], [3, 3], [1, 1], False, [0, 0], 1, mask
        )

    for way, run in [
        ("Forward", lambda: torch.nn.functional.conv2d(x, weight, padding=3)),
        ("Data", back([True, False, False])),
        ("Weight", back([False, True, False])),
    ]:
        if not (c == 3 and way == "Data"):
            print(f"| conv {name} {way} | {flops / median(run) / 1e12:.1f} TFLOP/s |")


class SegNet(torch.nn.Module):
    """SegNetBasic as gradscale builds it."""

    def __init__(self, width=64, classes=11):
        super().__init__()
        conv = lambda inputs: torch.nn.Conv2d(inputs, width, 7, padding=3, bias=False)
        self.lrn = torch.nn.LocalResponseNorm(5)
        self.encoder = torch.nn.ModuleList([conv(3 if i == 0 else width) for i in range(4)])
        self.decoder = torch.nn.ModuleList([conv(width) for _ in range(4)])
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(width) for _ in range(8)])
        self.last = torch.nn.Conv2d(width, classes, 1)

    def forward(self, x):
        x, places = self.lrn(x), []
        for conv, norm in zip(self.encoder, self.norms[:4]):
            before = torch.relu(norm(conv(x)))
            x, at = torch.nn.functional.max_pool2d(before, 2, ceil_mode=True, return_indices=True)
            places.append((at, before.shape[2:]))
        for conv, norm in zip(self.decoder, self.norms[4:]):
            at, size = places.pop()
            x = norm(conv(torch.nn.functional.max_unpool2d(x, at, 2, output_size=size)))
        return self.last(x)


net = SegNet().cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
images = torch.randn(12, 3, 360, 480, device="cuda").to(memory_format=torch.channels_last)
labels = torch.randint(0, 11, (12, 360, 480), device="cuda")
for name, half in [("PyTorch AMP with GradScaler", True), ("PyTorch f32", False)]:
    scaler = torch.amp.GradScaler("cuda", enabled=half)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.half, enabled=half):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    print(f"| segnet step, {name} | {12 / median(step):.1f} images/s |")
