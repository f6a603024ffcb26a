"""The base class of readers that give text fields and the number of the row."""

from typing import Optional

from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.data.collation import number_field


class NumberedTextsReader(DatasetReader):
    """A base class of readers whose instances have text fields and, with `with_ids`, a row number.

    It serves models that are AllenNLP's own in kind, without token ids on disk. A subclass passes
    its rows through `shard_iterable`, so that several workers or processes tokenize each row once.

    # Parameters

    tokenizer, token_indexers : any AllenNLP pair; the default is white space and single ids.
    with_ids : whether each instance has the field `ids` (int64).
    max_instances, serialization_dir : as in AllenNLP.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer],
        token_indexers: Optional[dict[str, TokenIndexer]],
        with_ids: bool,
        max_instances: Optional[int],
        serialization_dir: Optional[str],
    ) -> None:
        sharding = {"manual_distributed_sharding": True, "manual_multiprocess_sharding": True}
        super().__init__(max_instances, serialization_dir=serialization_dir, **sharding)
        self._tokenizer = tokenizer or WhitespaceTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._with_ids = with_ids

    def numbered(self, id: Optional[int]) -> dict[str, Field]:
        """Return `{"ids": field}` for the number of a row.

        Without `with_ids`, or if the number is `None`, return an empty dictionary.
        """
        return {"ids": number_field(id)} if self._with_ids and id is not None else {}

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            for text in field.field_list if isinstance(field, ListField) else [field]:
                if isinstance(text, TextField):
                    text.token_indexers = self._token_indexers
