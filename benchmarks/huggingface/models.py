"""The models, with random weights: transformers' by configuration, timm's by name; what they are given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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


def made(name: str) -> Any:
    """A model. ModuleNotFoundError if its library is not installed."""
    import torch

    torch.manual_seed(0)
    net = _made(name)
    args, named = given(name, net, 4, 128)
    return settled(net, *args, **named)


def settled(net: Any, *args: Any, **named: Any) -> Any:
    """The model in eval mode, with batch norms that know the mean and variance of what they take, as after
    training.

    Those of a new model do not: what it makes then vanishes or explodes, and is rounding more than anything.
    """
    import torch

    norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None  # the mean over all batches that are seen
        norm.train()
    if norms:
        with torch.no_grad():
            net(*args, **named)
    return net.eval()


def _made(name: str) -> Any:
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
