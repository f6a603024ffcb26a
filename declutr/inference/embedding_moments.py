"""The mean, covariance and principal directions of embeddings that come in blocks."""

import numpy as np

ROWS = 4096
"""The number of rows that are converted to float64 at a time."""


class WhiteningError(ValueError):
    """An error of embeddings that cannot be whitened, or of a file that holds no whitening."""


class Moments:
    """The count, mean and scatter matrix of rows that are added in blocks.

    Blocks are merged by the formula of Chan, Golub and LeVeque (1983), which loses no digits to
    cancellation, however far the mean lies from 0.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = np.zeros(0)
        self.scatter = np.zeros((0, 0))  # the sum of (x - mean) (x - mean)'

    def add(self, block: np.ndarray) -> None:
        """Add rows `(n, d)`.

        # Raises

        `WhiteningError` : the block has another shape, or numbers that are not finite.
        """
        if block.ndim != 2:
            raise WhiteningError(f"Got embeddings {block.shape}, expected (n, d).")
        if self.count and block.shape[1] != len(self.mean):
            raise WhiteningError(
                f"Got embeddings of {block.shape[1]} dimensions after others of {len(self.mean)}."
            )
        for start in range(0, len(block), ROWS):
            self._add(block[start : start + ROWS].astype(np.float64))

    def directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the variances `(d,)`, in falling order, and their directions `(d, d)`.

        Directions are columns of length 1. The sign of each is chosen so that its entry of largest
        absolute value is positive, which makes the result unique.

        # Raises

        `WhiteningError` : all rows are equal.
        """
        variances, directions = np.linalg.eigh(self.scatter / (self.count - 1))
        variances, directions = variances[::-1], directions[:, ::-1]  # eigh sorts them rising
        # The mean of equal rows may be off by a rounding error, which then looks like a variance.
        if not variances[0] > (1e-12 * np.abs(self.mean).max()) ** 2:
            raise WhiteningError(
                f"The {self.count} embeddings are all equal: there is nothing to whiten."
            )
        largest = np.abs(directions).argmax(axis=0)
        return variances, directions * np.sign(directions[largest, np.arange(len(largest))])

    def _add(self, rows: np.ndarray) -> None:
        if not np.isfinite(rows).all():
            raise WhiteningError(
                f"Got embeddings that are not finite, within the {len(rows)} rows after "
                f"{self.count}. Expected numbers: the model, or a text, is broken."
            )
        if not self.count:
            self.mean, self.scatter = np.zeros(rows.shape[1]), np.zeros((rows.shape[1],) * 2)
        count = self.count + len(rows)
        mean = rows.mean(axis=0)
        centred = rows - mean
        apart = mean - self.mean
        self.scatter += centred.T @ centred
        self.scatter += np.outer(apart, apart) * (self.count * len(rows) / count)
        self.mean = self.mean + apart * (len(rows) / count)
        self.count = count
