"""Networks of other libraries by name, with seeded weights: ``timm:NAME``, ``torchvision:NAME``,
``transformers:NAME`` (those of `benchmarks.huggingface`).
"""

import argparse
from typing import Any

from benchmarks.huggingface import models as huggingface
from bslite.spec import Array

LIBRARIES = ("timm", "torchvision", "transformers")
VIDEO, SMALL_VIDEO = (3, 16, 224, 224), (3, 16, 112, 112)
#: torchvision's, by the beginning of their names, and what they take, if not an image.
SHAPES = {
    **dict.fromkeys(("r3d", "mc3", "r2plus1d"), SMALL_VIDEO),
    **dict.fromkeys(("s3d", "mvit", "swin3d"), VIDEO),
    **dict.fromkeys(("deeplabv3", "fcn", "lraspp"), (3, 320, 320)),
}
#: One or two a family, of which nobody has tuned one.
UNSEEN = (
    *(
        f"timm:{name}"
        for name in (
            "convit_tiny", "convmixer_768_32", "convnext_femto", "coat_tiny", "cs3darknet_focus_m",
            "davit_tiny", "dla34", "edgenext_small", "efficientformer_l1", "efficientvit_b1", "fastvit_t8",
            "ghostnet_100", "hrnet_w18_small", "inception_next_atto", "levit_128s", "mobilenet_edgetpu_100",
            "mobileone_s1", "poolformerv2_s12", "regnety_004", "repvit_m1", "resnest14d", "rexnet_100",
            "starnet_s3", "swinv2_cr_tiny_224", "xcit_tiny_12_p8_224",
        )
    ),
    *(
        f"torchvision:{name}"
        for name in (
            "deeplabv3_resnet50", "fcn_resnet50", "lraspp_mobilenet_v3_large", "maxvit_t", "r2plus1d_18",
            "r3d_18", "s3d", "shufflenet_v2_x1_0", "swin3d_t", "swin_v2_t",
        )
    ),
    *(
        f"transformers:{name}"
        for name in (
            "albert", "clip-vision", "deberta-v2", "detr", "dinov2-small", "dpt", "gpt2", "llama", "minilm",
            "mobilevit", "modernbert", "segformer", "swin", "t5-encoder", "wav2vec2", "whisper-encoder",
            "yolos",
        )
    ),
)  # fmt: skip


def name_of(text: str) -> str:
    """A name of such a network. For argparse."""
    library, _, name = text.partition(":")
    if library not in LIBRARIES or not name:
        raise argparse.ArgumentTypeError(f"{text}: expected {', '.join(f'{k}:NAME' for k in LIBRARIES)}")
    if library == "transformers" and name not in huggingface.TRANSFORMERS:
        known = ", ".join(huggingface.TRANSFORMERS)
        raise argparse.ArgumentTypeError(f"{text}: expected one of {known}")
    return text


def made(name: str, batch: int, seed: int) -> tuple[Any, Array]:
    """The module in eval mode, which takes one array and gives one, and its input. ``seed`` is torchvision's;
    the others' weights and inputs are those of `benchmarks.huggingface`.

    Raises ModuleNotFoundError if the library is not installed.
    """
    import torch

    from benchmarks.peers.nets import import_models

    models = import_models()  # timm and transformers import torchvision, too
    torch.manual_seed(seed)
    library, _, own = name.partition(":")
    named: dict[str, Any] = {}
    if library == "torchvision":
        backbone = {"weights_backbone": None} if own.startswith(("deeplabv3", "fcn", "lraspp")) else {}
        net = models.get_model(own, weights=None, **backbone)
        shape = next((s for start, s in SHAPES.items() if own.startswith(start)), (3, 224, 224))
        net = huggingface.settled(net, torch.randn(2, *shape))
        args: tuple[Any, ...] = (torch.randn(batch, *shape),)
    else:
        known = name if library == "timm" else own
        net = huggingface.made(known)
        args, named = huggingface.given(known, net, batch, 128)
    x = (*args, *named.values())[0]
    return _one(net, "" if args else next(iter(named))), x.numpy()


def _one(net: Any, argument: str) -> Any:
    """The module, told its argument by name, which gives the first tensor of what it would give."""
    import torch

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            made = self.net(**{argument: x}) if argument else self.net(x)
            while not isinstance(made, torch.Tensor):
                made = next(iter(made.values() if hasattr(made, "values") else made))
            return made

    return One().eval()
