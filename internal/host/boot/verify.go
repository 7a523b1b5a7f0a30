// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
)

// chunk is the number of bytes that are read between two checks of the context.
const chunk = 16 << 20

// Verify checks that the files that the policy names are still equal to the copies. If they are, the copies are the files that were compiled, because
// the files did not change before and after. If a file has changed, Verify returns a ChangedError.
func (st *Staged) Verify(ctx context.Context) error {
	for _, ref := range st.source.Policy.Files() {
		list, err := st.openList(ref)
		if err != nil {
			return err
		}
		sum, err := sumOf(ctx, list)
		list.Close()
		if err != nil {
			return err
		}
		if sum != st.lists[*ref.Name].SHA256 {
			return &ChangedError{list.Name()}
		}
	}
	return nil
}

// ChangedError says that a file was changed while the policy was applied.
type ChangedError struct{ File string }

func (e *ChangedError) Error() string { return e.File + " changed while it was being applied" }

// Hint returns the remedy.
func (e *ChangedError) Hint() string { return "apply the policy again" }

// sumOf returns the SHA-256 of the rest of a file, in hexadecimal digits.
func sumOf(ctx context.Context, file *os.File) (string, error) {
	sum := sha256.New()
	err := inChunks(ctx, sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// inChunks copies the rest of a file. If the destination is a file, the kernel copies, and shares the blocks if the file system supports that.
func inChunks(ctx context.Context, to io.Writer, from *os.File) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := io.CopyN(to, from, chunk); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
