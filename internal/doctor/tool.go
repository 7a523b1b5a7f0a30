// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	toolTime  = 1500 * time.Millisecond
	toolBytes = 64 << 20 // the largest output of a tool that is accepted
)

// errTooMuch says that a tool has printed more than toolBytes.
var errTooMuch = errors.New("it prints more than is read")

// bounded is a writer that stores at most toolBytes. It does not embed its buffer, because the buffer's ReadFrom has no limit.
type bounded struct{ text bytes.Buffer }

// Write stores p. It returns errTooMuch if the limit would be exceeded.
func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > toolBytes {
		return 0, errTooMuch
	}
	return b.text.Write(p)
}

// runTool runs a program for at most toolTime.
func runTool(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = toolTime // on a busy machine the reader of a pipe may run late
	var out bounded
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v", toolTime)
	}
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return out.text.Bytes(), fmt.Errorf("%s: %w %s", name, err, first)
	}
	return out.text.Bytes(), nil
}
