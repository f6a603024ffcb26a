"""What goes wrong with an index, in words for its user."""


class SearchError(ValueError):
    """An index that cannot be built or searched, or a query: the message says what to do."""


class OtherIndex(SearchError):
    """An index that another release of this package wrote."""
