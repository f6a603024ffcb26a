"""Word-piece tokenizers, trained on the texts of a corpus."""

from collections.abc import Iterable

UNKNOWN = "[UNK]"


def trained_word_pieces(texts: Iterable[str], vocabulary: int = 30_000) -> str:
    """Train a word-piece tokenizer of BERT's kind: lower case, without accents.

    # Parameters

    texts : the texts, which are read once.
    vocabulary : the largest number of tokens.

    # Returns

    The content of its `tokenizer.json`. The same texts give the same tokenizer.

    # Raises

    `ValueError` : the texts are empty, or have more different characters than the vocabulary tokens.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers.trainers import WordPieceTrainer

    if vocabulary < 100:
        raise ValueError(f"A vocabulary of {vocabulary} is too small; expected at least 100.")
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN, max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = WordPieceTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        limit_alphabet=min(1000, vocabulary // 4),
        special_tokens=["[PAD]", UNKNOWN],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() <= 2:
        raise ValueError("The texts are empty: there is nothing to learn a vocabulary from.")
    return tokenizer.to_str()
