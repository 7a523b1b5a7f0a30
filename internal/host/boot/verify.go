package boot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
)

// chunk is how much is read between two looks at the context, in bytes.
const chunk = 16 << 20

// Verify makes sure that the files that the policy names still are what was copied. When they are after they were compiled, as they were
// before, then what comes back is what was compiled; else the error is a ChangedError.
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

// ChangedError says that a file was written while it was read.
type ChangedError struct{ File string }

func (e *ChangedError) Error() string { return e.File + " changed while it was being applied" }

// Hint says how to go on.
func (e *ChangedError) Hint() string { return "apply the policy again" }

// sumOf is the SHA-256 of what is left of a file, in hexadecimal digits.
func sumOf(ctx context.Context, file *os.File) (string, error) {
	sum := sha256.New()
	err := inChunks(ctx, sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// inChunks copies what is left of a file. Where to is a file, the kernel does it, by sharing the blocks if the file
// system can.
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
