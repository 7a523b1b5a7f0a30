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
	toolBytes = 64 << 20 // what is read of a tool's output
)

// errTooMuch ends a tool that prints more than toolBytes.
var errTooMuch = errors.New("it prints more than is read")

// bounded keeps what is written to it, up to toolBytes. It does not embed its buffer, whose ReadFrom knows no bound.
type bounded struct{ text bytes.Buffer }

// Write appends, or returns errTooMuch.
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
	cmd.WaitDelay = toolTime // a busy machine may not let the reader of a pipe run before
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
