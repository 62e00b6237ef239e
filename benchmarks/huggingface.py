"""Models of transformers and timm through `bslite.optimize`, beside torch eager:
``python -m benchmarks.huggingface``.

Weights are random, sizes those of small published models; nothing is downloaded. For every model: whether it
is right (against torch in float64, as everywhere), what runs in bslite, seconds of the first call and of the
first of another size, and torch's time divided by bslite's, of wall time in blocks. The exit code is 1 if an
answer is wrong.
"""

import argparse
import copy
import statistics
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import bslite
from benchmarks import origin
from benchmarks.blocks import in_blocks
from bslite.dropin.runner import runner_of
from bslite.verification import FACTOR
from bslite.verification import TINY as TINY_ERROR


@dataclass(frozen=True)
class Made:
    """A model of transformers: its class without "Model", and what differs from its configuration's defaults.

    ``takes``: "text", or what the model is given under this name. ``shape``: of that, without the batch.
    """

    base: str
    differing: Mapping[str, Any] = field(default_factory=dict)
    takes: str = "text"
    shape: tuple[int, ...] = (3, 224, 224)
    model: str = ""  # its class, if not ``baseModel``
    part: str = ""  # the attribute that is measured; empty: all


IMAGE, SMALL = "pixel_values", (3, 256, 256)
LANGUAGE = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 6, "num_attention_heads": 8}
TINY = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
SPEECH = {
    "d_model": 384, "encoder_layers": 4, "decoder_layers": 1, "encoder_attention_heads": 6,
    "encoder_ffn_dim": 1536, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536,
}  # fmt: skip
SPECIAL = dict(
    zip(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), (1, 2, 1, 2), strict=True)
)
TRANSFORMERS: Mapping[str, Made] = {
    "bert-base": Made("Bert"),
    "minilm": Made("Bert", {**TINY, "num_hidden_layers": 6, "num_attention_heads": 12}),
    "distilbert": Made("DistilBert"),
    "roberta": Made("Roberta"),
    "electra": Made("Electra"),
    "albert": Made("Albert", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "mpnet": Made("MPNet"),
    "deberta-v2": Made(
        "DebertaV2",
        {
            "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072,
            "relative_attention": True, "pos_att_type": ["p2c", "c2p"],
        },
    ),
    "modernbert": Made(
        "ModernBert", {"num_hidden_layers": 8, "vocab_size": 2000, "pad_token_id": 0, **SPECIAL}
    ),
    "gpt2": Made("GPT2", {"n_layer": 6, "vocab_size": 5000}, model="GPT2LMHeadModel"),
    "llama": Made(
        "Llama", {**LANGUAGE, "num_key_value_heads": 4, "vocab_size": 5000}, model="LlamaForCausalLM"
    ),
    "qwen2": Made(
        "Qwen2", {**LANGUAGE, "num_key_value_heads": 2, "vocab_size": 5000}, model="Qwen2ForCausalLM"
    ),
    "t5-encoder": Made("T5", {"vocab_size": 5000}, model="T5EncoderModel"),
    "clip-text": Made("CLIPText"),
    "clip-vision": Made("CLIPVision", takes=IMAGE),
    "vit": Made("ViT", takes=IMAGE),
    "deit-small": Made("DeiT", TINY, IMAGE),
    "dinov2-small": Made("Dinov2", {"hidden_size": 384, "num_attention_heads": 6}, IMAGE),
    "swin": Made("Swin", takes=IMAGE),
    "convnext": Made("ConvNext", takes=IMAGE),
    "resnet": Made("ResNet", takes=IMAGE),
    "mobilevit": Made("MobileViT", takes=IMAGE, shape=SMALL),
    "segformer": Made("Segformer", takes=IMAGE, shape=SMALL, model="SegformerForSemanticSegmentation"),
    "detr": Made(
        "Detr",
        {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
        IMAGE,
        SMALL,
    ),
    "yolos": Made(
        "Yolos",
        {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "image_size": [256, 256]},
        IMAGE,
        SMALL,
    ),
    "dpt": Made(
        "DPT",
        {**TINY, "image_size": 224, "neck_hidden_sizes": [48, 96, 192, 384]},
        IMAGE,
        model="DPTForDepthEstimation",
    ),
    "whisper-encoder": Made("Whisper", SPEECH, "input_features", (80, 3000), part="encoder"),
    "wav2vec2": Made("Wav2Vec2", {"num_hidden_layers": 4}, "input_values", (16000,)),
}  # fmt: skip
TIMM = (
    "resnet50", "convnext_tiny", "vit_small_patch16_224", "swin_tiny_patch4_window7_224",
    "efficientnetv2_rw_t", "mobilenetv3_large_100", "regnety_008", "mixer_b16_224", "coat_tiny",
    "densenet121", "deit3_small_patch16_224", "edgenext_small",
)  # fmt: skip
NAMES = (*TRANSFORMERS, *(f"timm:{name}" for name in TIMM))


@dataclass(frozen=True)
class Result:
    """``errors``: bslite's and torch's, relative to float64; of each result at two sizes.
    ``share``: of flops in torch. ``seconds``: the first call, the first of another size; a call of bslite and
    of torch.
    """

    name: str
    errors: tuple[tuple[float, float], ...]
    share: float
    seconds: tuple[float, float, float, float]
    in_torch: tuple[str, ...]

    @property
    def right(self) -> bool:
        """By the rule that holds everywhere here."""
        return all(ours <= FACTOR * theirs + TINY_ERROR for ours, theirs in self.errors)

    @property
    def ratio(self) -> float:
        """torch's time divided by bslite's."""
        return self.seconds[3] / self.seconds[2]

    def __str__(self) -> str:
        first, other, ours, theirs = self.seconds
        error = max(self.errors)
        line = f"{self.name:34} {'right' if self.right else 'WRONG'} {error[0]:.0e}/{error[1]:.0e}"
        line += f" first {first:6.2f} s, new size {other:6.2f} s;"
        line += f" {1e3 * ours:8.2f} ms, torch {1e3 * theirs:8.2f}:"
        line += f" {self.ratio:.2f}; {100 * self.share:.1f} % in torch"
        return "\n".join((line, *(f"    {reason}" for reason in self.in_torch)))


def made(name: str) -> Any:
    """A model. ModuleNotFoundError if its library is not installed."""
    import torch

    torch.manual_seed(0)
    if name.startswith("timm:"):
        import timm

        return timm.create_model(name.removeprefix("timm:"), pretrained=False).eval()
    import transformers

    it = TRANSFORMERS[name]
    config = getattr(transformers, f"{it.base}Config")(**it.differing)
    net = getattr(transformers, it.model or f"{it.base}Model")(config).eval()
    return getattr(net, it.part) if it.part else net


def given(name: str, net: Any, batch: int, length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call. Of a text in a batch, all but the first are half padding."""
    import torch

    torch.manual_seed(batch)
    if name.startswith("timm:"):
        return (torch.randn(batch, *net.pretrained_cfg["input_size"]),), {}
    it = TRANSFORMERS[name]
    if it.takes != "text":
        return (), {it.takes: torch.randn(batch, *it.shape)}
    length = min(length, 77) if name == "clip-text" else length
    ids, mask = torch.randint(5, 1000, (batch, length)), torch.ones(batch, length, dtype=torch.int64)
    mask[1:, length // 2 :] = 0
    caches = {"use_cache": False} if it.model.endswith(("LMHeadModel", "CausalLM")) else {}
    return (), {"input_ids": ids, "attention_mask": mask, **caches}


def examine(name: str, batch: int, length: int, threads: int, rounds: int) -> Result:
    """One model at two sizes, against torch in float64, then in turns with torch eager at the first."""
    import torch

    net = made(name)
    exact, fast = copy.deepcopy(net).double(), bslite.optimize(net, tune=False, threads=threads)
    firsts, errors = [], []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sizes in ((batch, length), (batch + 1, length * 3 // 4)):
            args, named = given(name, net, *sizes)
            start = time.perf_counter()
            ours = fast(*args, **named)
            firsts.append(time.perf_counter() - start)
            theirs = net(*args, **named)
            truth = exact(*map(doubled, args), **{k: doubled(x) for k, x in named.items()})
            for mine, peer, true in zip(*map(numbers, (ours, theirs, truth)), strict=True):
                errors.append((distance(mine, true), distance(peer, true)))
        args, named = given(name, net, batch, length)
        taken = in_blocks(
            {"bslite": lambda: fast(*args, **named), "torch": lambda: net(*args, **named)}, rounds
        )
    report = bslite.report(fast)
    lacking = [f"torch: {item}" for kind in report.kinds for item in kind.unsupported]
    reasons = (*lacking, *(f"{n} call(s) in torch: {why}" for why, n in report.calls_in_torch.items()))
    runner_of(fast).forget()
    medians = statistics.median(taken["bslite"]), statistics.median(taken["torch"])
    share = max(kind.torch_share for kind in report.kinds)
    return Result(name, tuple(errors), share, (*firsts, *medians), tuple(dict.fromkeys(reasons)))  # type: ignore[arg-type]


def doubled(x: Any) -> Any:
    """A tensor of float32 in float64; anything else as it is."""
    return x.double() if getattr(x, "is_floating_point", bool)() else x


def distance(x: Any, truth: Any) -> float:
    """Relative, in the L2 norm; absolute of zeros, which some models make of random weights."""
    return float((x.double() - truth).norm()) / (float(truth.norm()) or 1.0)


def numbers(result: Any) -> list[Any]:
    """The tensors of floats in a result."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(result)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def main(arguments: list[str] | None = None) -> int:
    """Examine every model whose library is installed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.huggingface", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    bslite.warmup(threads=options.threads)
    about = f"{origin.machine()['cpu']}, commit {origin.commit()}, torch {torch.__version__}"
    print(f"{about}, {options.threads} thread(s), batch {options.batch}, {options.length} tokens")
    results = []
    for name in options.models:
        try:
            results.append(examine(name, options.batch, options.length, options.threads, options.rounds))
        except (ModuleNotFoundError, RuntimeError) as e:  # a torchvision built for another torch
            print(f"{name:34} left out: {e}")
        else:
            print(results[-1], flush=True)
    if results:
        ratios = [r.ratio for r in results]
        mean = statistics.geometric_mean(ratios)
        print(
            f"torch / bslite: {mean:.2f} in the geometric mean of {len(ratios)}, {min(ratios):.2f} at least"
        )
    return int(any(not r.right for r in results))


if __name__ == "__main__":
    sys.exit(main())
