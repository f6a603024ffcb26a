"""Random checkpoints of families of transformers, 16 wide and two layers deep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

TEXTS = [
    "the old house by the river was sold again last spring",
    "she plays the violin and he plays the cello in one band",
    "good trains run late when snow falls on bad green hills",
    "why do cats sleep all day and run about at night",
]
MAX_LENGTH = 64
FNET_TAKES_A_MASK = pytest.mark.skipif(
    transformers.__version__.startswith("4."), reason="FNet takes no mask there, and fails"
)
_SIZE = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
_BERT["mask_token"] = "[MASK]"
_ROBERTA = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}
_ROBERTA["mask_token"] = "<mask>"


def wordpiece() -> PreTrainedTokenizerBase:
    """`[CLS] ... [SEP]`, padding id 0: BERT, DistilBERT, ELECTRA."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=list(_BERT.values()), show_progress=False
    )
    return _finished(backend, trainer, _BERT)


def unigram(specials: dict[str, str] = _BERT) -> PreTrainedTokenizerBase:
    """Pieces of a unigram model between `[CLS]` and `[SEP]`: ALBERT."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    unknown = specials["unk_token"]
    settings: dict[str, Any] = {"vocab_size": 90, "unk_token": unknown, "show_progress": False}
    trainer = trainers.UnigramTrainer(special_tokens=list(specials.values()), **settings)
    return _finished(backend, trainer, specials)


def unigram_of_xlmr() -> PreTrainedTokenizerBase:
    """Pieces of a unigram model between `<s>` and `</s>`, padding id 1: XLM-R."""
    return unigram(_ROBERTA)


def bytes_of_roberta(specials: dict[str, str] = _ROBERTA) -> PreTrainedTokenizerBase:
    """Byte-level BPE between `<s>` and `</s>`, padding id 1: RoBERTa."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    settings: dict[str, Any] = {"vocab_size": 300, "show_progress": False}
    settings |= {"special_tokens": list(specials.values()), "initial_alphabet": alphabet}
    return _finished(backend, trainers.BpeTrainer(**settings), specials)


def bytes_of_modernbert() -> PreTrainedTokenizerBase:
    """Byte-level BPE between `[CLS]` and `[SEP]`: ModernBERT."""
    return bytes_of_roberta(_BERT)


def _finished(
    backend: Tokenizer, trainer: trainers.Trainer, specials: dict[str, str]
) -> PreTrainedTokenizerBase:
    backend.train_from_iterator(TEXTS, trainer)
    begin, end = specials["cls_token"], specials["sep_token"]
    ids = [(token, backend.token_to_id(token)) for token in (begin, end)]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B:1 {end}:1", special_tokens=ids
    )
    limit = {"model_max_length": MAX_LENGTH}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **limit, **specials)


def _bert(name: str, **changes: Any) -> Callable[[PreTrainedTokenizerBase], PretrainedConfig]:
    def make(tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
        ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.cls_token_id}
        ids |= {"eos_token_id": tokenizer.sep_token_id, "vocab_size": len(tokenizer)}
        size = {**_SIZE, "hidden_size": 16, "max_position_embeddings": MAX_LENGTH}
        return getattr(transformers, name)(**{**size, **ids, **changes})

    return make


def _distilbert(tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    return transformers.DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=16,
        n_layers=2,
        n_heads=2,
        hidden_dim=32,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=tokenizer.pad_token_id,
    )


def _modernbert(tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    return _bert("ModernBertConfig", local_attention=8, **ends)(tokenizer)


# RoBERTa and XLM-R count positions from the padding id + 1 on.
_SHIFTED = {"max_position_embeddings": MAX_LENGTH + 2, "type_vocab_size": 1}

FAMILIES = {
    "bert": (wordpiece, _bert("BertConfig")),
    "roberta": (bytes_of_roberta, _bert("RobertaConfig", **_SHIFTED)),
    "distilbert": (wordpiece, _distilbert),
    "albert": (unigram, _bert("AlbertConfig", embedding_size=8)),
    "xlm-roberta": (unigram_of_xlmr, _bert("XLMRobertaConfig", **_SHIFTED)),
    "electra": (wordpiece, _bert("ElectraConfig", embedding_size=8)),
    "modernbert": (bytes_of_modernbert, _modernbert),
}
_ENTITIES = {"entity_vocab_size": 4, "entity_emb_size": 8}
_LANGUAGES = {"languages": ["de_DE", "en_XX"], "default_language": "en_XX"}
_LANGUAGES["adapter_reduction_factor"] = 2
# More that count positions so, most of them by code of their own.
COUNTING_FROM_PADDING = {
    "camembert": (bytes_of_roberta, _bert("CamembertConfig", **_SHIFTED)),
    "data2vec-text": (bytes_of_roberta, _bert("Data2VecTextConfig", **_SHIFTED)),
    "esm": (bytes_of_roberta, _bert("EsmConfig", mask_token_id=4, **_SHIFTED)),
    "luke": (bytes_of_roberta, _bert("LukeConfig", **_ENTITIES, **_SHIFTED)),
    "mpnet": (bytes_of_roberta, _bert("MPNetConfig", **_SHIFTED)),
    "roberta-prelayernorm": (bytes_of_roberta, _bert("RobertaPreLayerNormConfig", **_SHIFTED)),
    "xlm-roberta-xl": (unigram_of_xlmr, _bert("XLMRobertaXLConfig", **_SHIFTED)),
    "xmod": (unigram_of_xlmr, _bert("XmodConfig", **_LANGUAGES, **_SHIFTED)),
}


def build(family: str, folder: Path) -> Path:
    """Save a checkpoint of `family` with its tokenizer into `folder`."""
    make_tokenizer, make_config = (FAMILIES | COUNTING_FROM_PADDING)[family]
    tokenizer = make_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForMaskedLM.from_config(make_config(tokenizer))
        with torch.no_grad():  # biases of 0 would hide a head that leaves them out
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_gpt2(folder: Path) -> Path:
    """A transformer without a masked language modelling head (yet with a mask token)."""
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": MAX_LENGTH}
    return _saved("GPT2", folder, **size)


def build_opt(folder: Path) -> Path:
    """A transformer whose token embeddings are narrower than its layers."""
    size = {"hidden_size": 16, "word_embed_proj_dim": 8, "ffn_dim": 32, "num_hidden_layers": 1}
    size |= {"num_attention_heads": 2, "max_position_embeddings": MAX_LENGTH}
    return _saved("OPT", folder, do_layer_norm_before=False, pad_token_id=0, **size)


def build_t5(folder: Path, model: str = "T5Model") -> Path:
    """An encoder-decoder, or the encoder alone if `model` is "T5EncoderModel"."""
    size = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    start = wordpiece().pad_token_id
    return _saved("T5", folder, model, decoder_start_token_id=start, **size)


def build_bart(folder: Path, **changes: int) -> Path:
    """An encoder-decoder that makes the input of its decoder from the text."""
    size = {"d_model": 16, "max_position_embeddings": MAX_LENGTH}
    for part in ("encoder", "decoder"):
        size |= {f"{part}_layers": 1, f"{part}_attention_heads": 2, f"{part}_ffn_dim": 32}
    return _saved("Bart", folder, pad_token_id=wordpiece().pad_token_id, **{**size, **changes})


def build_fsmt(folder: Path) -> Path:
    """An encoder-decoder whose encoder is no model of its own."""
    vocabulary = len(wordpiece())
    size: dict[str, Any] = {"d_model": 16, "max_position_embeddings": MAX_LENGTH}
    for part in ("encoder", "decoder"):
        size |= {f"{part}_layers": 1, f"{part}_attention_heads": 2, f"{part}_ffn_dim": 32}
    size |= {"src_vocab_size": vocabulary, "tgt_vocab_size": vocabulary, "langs": ["en", "de"]}
    return _saved("FSMT", folder, pad_token_id=wordpiece().pad_token_id, **size)


def build_canine(folder: Path) -> Path:
    """A transformer of characters, which has no table of tokens and joins four to one."""
    size = {**_SIZE, "hidden_size": 16, "num_hash_buckets": 256, "max_position_embeddings": 256}
    config = transformers.CanineConfig(**size, local_transformer_stride=8)
    transformers.CanineModel(config).save_pretrained(folder)
    transformers.CanineTokenizer().save_pretrained(folder)
    return folder


def build_dpr(folder: Path) -> Path:
    """A transformer of which Hugging Face gives an embedding, and no token embeddings."""
    size = {**_SIZE, "hidden_size": 16, "max_position_embeddings": MAX_LENGTH}
    return _saved("DPR", folder, "DPRQuestionEncoder", **size)


def build_mamba(folder: Path) -> Path:
    """A model that uses the weights of its linear layers by itself."""
    size = {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    return _saved("Mamba", folder, pad_token_id=wordpiece().pad_token_id, **size)


def build_reformer(folder: Path) -> Path:
    """A transformer that trains on texts of certain lengths only."""
    size: dict[str, Any] = {"hidden_size": 16, "axial_pos_shape": [8, 8], "feed_forward_size": 16}
    size |= {"axial_pos_embds_dim": [8, 8], "attention_head_size": 8, "num_attention_heads": 2}
    size |= {"local_attn_chunk_length": 8, "attn_layers": ["local"], "is_decoder": False}
    return _saved("Reformer", folder, **size)


def build_perceiver(folder: Path) -> Path:
    """A transformer that gives vectors of its latents, and none of tokens."""
    size = {"num_blocks": 1, "num_self_attends_per_block": 1, "num_self_attention_heads": 2}
    size |= {"num_latents": 4, "d_latents": 16, "d_model": 16, "num_cross_attention_heads": 2}
    return _saved("Perceiver", folder, **size)


def _saved(name: str, folder: Path, model: str = "", **settings: Any) -> Path:
    tokenizer = wordpiece()
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), **settings)
    getattr(transformers, model or f"{name}Model")(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
