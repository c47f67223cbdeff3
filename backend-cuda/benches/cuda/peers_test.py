#!/usr/bin/env python3
"""Tests the bench's PyTorch side on the CPU: unpooling in channels last has PyTorch's results, small networks have the
engine's parameters and train, and losses are those that they replace.

The last line starts with PASSED, FAILED (exit status 1) or SKIPPED. Without torchvision the four networks for pictures
are skipped.
"""
import importlib.util
import io
import contextlib
import pathlib
import sys
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]
if importlib.util.find_spec("torch") is None:
    print("SKIPPED: the bench's PyTorch side: PyTorch is not installed")
    sys.exit()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import networks  # noqa: E402
import peers  # noqa: E402

PICTURES = ["resnet-50", "vgg-16", "inception-v3", "ssd-300"]
HERE = [name for name in networks.NETWORKS if name not in PICTURES or importlib.util.find_spec("torchvision")]


def training(name):
    """Returns a small network, ready to train on the CPU."""
    found = networks.built(name, True, "cpu")
    found.start()
    return found


class Unpooling(unittest.TestCase):
    def pooled(self, h, w):
        x = torch.randn(2, 5, h, w).to(memory_format=torch.channels_last)
        y, at = F.max_pool2d(x, 2, ceil_mode=True, return_indices=True)
        return y.requires_grad_(), at, x.shape

    def test_values_and_gradients_are_those_of_max_unpool2d(self):
        torch.manual_seed(1)
        # Whole windows, and such as end outside: 45 rows become 23.
        for h, w in [(8, 6), (9, 7), (45, 60), (1, 3)]:
            y, at, size = self.pooled(h, w)
            found = []
            for unpool in [peers.unpool, peers.unpool_by_scatter]:
                y.grad = None
                whole = unpool(y, at, size)
                (whole * torch.arange(whole.numel()).view(size)).sum().backward()
                found.append((whole.detach(), y.grad))
            for one, other in zip(*found):
                self.assertTrue(torch.equal(one, other), (h, w))

    def test_channels_stay_last(self):
        y, at, size = self.pooled(8, 6)
        self.assertTrue(peers.unpool_by_scatter(y, at, size).is_contiguous(memory_format=torch.channels_last))

    def test_a_network_has_the_same_loss_and_gradients(self):
        machine, found = peers.Machine("cpu", True), []
        for unpooling in [peers.unpool, peers.unpool_by_scatter]:
            torch.manual_seed(2)
            step = peers.Step(machine, False, unpooling)
            loss = step.loss()
            loss.backward()
            found.append([loss.detach(), *(one.grad for one in step.net.parameters())])
        for one, other in zip(*found):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class Rows(unittest.TestCase):
    def said(self, *parts):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch.object(sys, "argv", ["peers.py", "--device", "cpu", "--small", *parts]):
            with self.assertRaises(SystemExit) as end:
                peers.main()
        self.status = end.exception.code
        return out.getvalue()

    def test_a_part_that_fails_does_not_stop_the_next(self):
        with mock.patch.object(peers, "HERE", pathlib.Path("/nowhere/at/all")):
            text = self.said("odd", "copy")
        self.assertIn("| odd | failed: FileNotFoundError: odd.csv is neither in", text)
        self.assertIn("| copy of 1 GiB, PyTorch | ", text)
        self.assertEqual(self.status, 1)

    def test_every_part_has_its_rows(self):
        text = self.said("copy", "attention", "conv", "odd", "segnet", "f32")
        rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
        expected = [f"conv odd {one['name']} {way}" for one in peers.odd_sizes() for way in one["passes"].split()]
        self.assertEqual(len(expected), 27)
        for name in [*expected, "copy of 1 GiB, PyTorch", "attention 1×2×40×64 causal forward, PyTorch SDPA",
                     "attention 1×1×40×128 causal backward, PyTorch SDPA", "conv encoder.conv1 Weight", "conv decoder.conv1 Data",
                     "segnet step, PyTorch AMP, max_unpool2d", "segnet step, PyTorch AMP, unpooling by scatter",
                     "segnet step, PyTorch AMP", "segnet step, PyTorch f32"]:
            self.assertIn(name, rows)
        self.assertNotIn("failed", text)
        self.assertEqual(self.status, 0)

    def test_what_cannot_be_compiled_is_a_row(self):
        def compile(self):
            self.loss = lambda: 1 / 0

        with mock.patch.object(peers.Step, "compile", compile):
            text = self.said("segnet", "compiled")
        self.assertIn("| segnet step, PyTorch AMP, max_unpool2d, compiled | failed: ZeroDivisionError: division by zero |", text)
        # The best is still the eager one.
        self.assertIn("| segnet step, PyTorch AMP |", text)

    def test_a_compilation_has_a_limit(self):
        with self.assertRaisesRegex(peers.Late, "not compiled within 1 s"):
            peers.within(1, lambda: [None for _ in iter(int, 1)])
        self.assertEqual(peers.within(1, lambda: 7), 7)


class Networks(unittest.TestCase):
    def test_small_ones_train(self):
        for name in HERE:
            with self.subTest(name):
                torch.manual_seed(3)
                one = training(name)
                before = [parameter.detach().clone() for parameter in one.model.parameters()]
                one.step()
                changed = [not torch.equal(old, new) for old, new in zip(before, one.model.parameters())]
                for parameter in one.model.parameters():
                    self.assertTrue(torch.isfinite(parameter).all())
                # If batch norm gets one pixel, or an embedding no word, a gradient may be zero.
                self.assertGreater(sum(changed), 0.6 * len(changed))

    def test_all_have_the_parameters_of_the_papers(self):
        for name in HERE:
            networks.built(name, False, "meta")

    def test_another_network_is_no_peer(self):
        rows = networks.rows(True)
        rows["decoder"]["pytorch"] += 1
        with mock.patch.object(networks, "rows", lambda small: rows), self.assertRaisesRegex(ValueError, "parameters"):
            networks.built("decoder", True, "cpu")

    def test_a_decoder_does_not_look_ahead(self):
        torch.manual_seed(4)
        net = training("decoder").model.eval()
        tokens = torch.randint(0, 57, (1, 8))
        other = tokens.clone()
        other[0, 5] = (other[0, 5] + 1) % 57
        one, two = net(tokens), net(other)
        torch.testing.assert_close(one[:, :5], two[:, :5])
        self.assertFalse(torch.allclose(one[:, 5:], two[:, 5:]))

    def test_a_decoder_is_that_of_torch(self):
        torch.manual_seed(5)
        net = training("decoder").model.eval()
        tokens = torch.randint(0, 57, (2, 8))
        x = net.tokens(tokens) + net.places.weight[:8]
        for own in net.layers:
            layer = torch.nn.TransformerEncoderLayer(32, 4, 128, 0.0, F.gelu, batch_first=True, norm_first=True)
            names = {"self_attn.in_proj_": "inside.", "self_attn.out_proj.": "out."}
            state = own.state_dict()
            for old, new in names.items():
                for end in ["weight", "bias"]:
                    state[old + end] = state.pop(new + end)
            layer.load_state_dict(state)
            x = layer(x, torch.nn.Transformer.generate_square_subsequent_mask(8), is_causal=True)
        torch.testing.assert_close(net(tokens), net.norm(x) @ net.tokens.weight.T, rtol=1e-4, atol=1e-5)

    def test_words_behind_a_source_count_for_nothing(self):
        torch.manual_seed(6)
        one = training("seq2seq")
        one.model.eval()
        source, lengths, _, target, _ = one.batch
        lengths[1], behind = 2, torch.arange(5) >= torch.tensor([5, 2])[:, None]
        other = source.clone()
        other[1, 2:] = (other[1, 2:] + 7) % 50
        torch.testing.assert_close(one.model(source, lengths, behind, target), one.model(other, lengths, behind, target))
        other[1, 1] = (other[1, 1] + 7) % 50
        self.assertFalse(torch.allclose(one.model(source, lengths, behind, target), one.model(other, lengths, behind, target)))

    def test_sampled_softmax_is_the_formula(self):
        torch.manual_seed(7)
        one = training("biglstm")
        model = one.model.eval()
        tokens, labels, of_labels, classes, of_classes, hits = one.batch
        # The label is among the sampled classes.
        classes[0] = labels[0]
        hits = labels[:, None] == classes
        x = model.lstm(model.tokens(tokens))[0].flatten(0, 1)
        weight, bias = model.softmax.weight, model.softmax.bias
        own = (x * weight[labels]).sum(1) + bias[labels] - of_labels
        drawn = x @ weight[classes].T + bias[classes] - of_classes
        counts = torch.where(hits, 0.0, drawn.exp()).sum(1) + own.exp()
        expected = (counts.log() - own).mean()
        torch.testing.assert_close(model(tokens, labels, of_labels, classes, of_classes, hits), expected)

    def test_frames_behind_an_end_count_for_nothing(self):
        torch.manual_seed(8)
        one = training("deep-speech-2")
        x, steps, _, targets, letters = one.batch
        steps[1] = 6
        places = (torch.arange(10) < steps[:, None]).flatten().nonzero().squeeze(1)
        y = one.model(x, steps, places)
        # Statistics of the frames before the ends alone.
        norm = one.model.norm
        values = torch.randn(2, 10, 16)
        normal = one.model.normal(norm, values, places)
        valid = torch.cat([values[0], values[1, :6]])
        expected = (valid - valid.mean(0)) / (valid.var(0, unbiased=False) + norm.eps).sqrt()
        torch.testing.assert_close(torch.cat([normal[0], normal[1, :6]]), expected, rtol=1e-4, atol=1e-5)
        self.assertTrue((normal[1, 6:] == 0).all() and torch.isfinite(y).all())

    @unittest.skipUnless("ssd-300" in HERE, "torchvision is not installed")
    def test_an_ssds_loss_is_torchvisions(self):
        torch.manual_seed(9)
        one = training("ssd-300")
        # Two images with unlike numbers of matched boxes, so that negatives are those of each image.
        x, labels, codes = (torch.cat([part, part]) for part in one.batch)
        labels[1, 5:60] = 2
        answers = one.answers(x)
        found = labels > 0
        losses = F.cross_entropy(answers["cls_logits"].flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        negative = losses.detach().clone()
        negative[found] = -float("inf")
        hard = negative.sort(1, descending=True)[1].sort(1)[1] < 3 * found.sum(1, keepdim=True)
        total = F.smooth_l1_loss(answers["bbox_regression"][found], codes[found], reduction="sum")
        total = (total + losses[found].sum() + losses[hard].sum()) / found.sum()
        torch.testing.assert_close(one.loss(x, labels, codes), total)


if __name__ == "__main__":
    torch.set_num_threads(1)
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__]))
    without = "" if len(HERE) == len(networks.NETWORKS) else " (without networks for pictures: no torchvision)"
    print(f"PASSED: the bench's PyTorch side{without}" if result.wasSuccessful() else "FAILED: the bench's PyTorch side")
    sys.exit(not result.wasSuccessful())
