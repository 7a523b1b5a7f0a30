package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
)

// daemonSocket is the socket at which the daemon of this instance answers questions: `daemon --run` may have put it anywhere.
func (e *env) daemonSocket() string {
	dir := cmp.Or(instance.LockOf(e.BPFFS).Sockets(), api.Dir(e.BPFFS, datapath.DefaultDir))
	return filepath.Join(dir, api.ReadSocket)
}

// costs is the cost model of this host, nil when there is none that can be used.
func (e *env) costs() *cost.Model {
	return operate.NewHost(e.BPFFS, e.StateOrDefault(), e.WarnOf).Costs()
}

// stdinWord is the word for standard input in place of a policy file.
const stdinWord = "-"

// policyArg is what commands call their argument that names a policy.
const policyArg = "POLICY, a file (- is standard input)"

// policyName is what messages call a policy.
func policyName(file string) string {
	if file == stdinWord {
		return policy.Stdin
	}
	return file
}

// compiled reads and lowers a policy.
func (e *env) compiled(ctx context.Context, file string) (*control.Compiled, error) {
	return periodic.Within(ctx, func() (*control.Compiled, error) {
		p, err := e.readSound(file)
		if err != nil {
			return nil, err
		}
		return control.Compile(p, feed.InState(e.StateOrDefault()))
	})
}

// readSound reads a policy from its file or from standard input. Beside mistakes it returns what is sound, as policy.ParseSound does.
func (e *env) readSound(file string) (*policy.Policy, error) {
	read := policy.Source
	if file == stdinWord {
		read = func(string) ([]byte, error) { return e.inputPolicy() }
	}
	text, err := read(file)
	if err != nil {
		return nil, err
	}
	return policy.ParseSound(policyName(file), text)
}

// inputPolicy reads the text of a policy from standard input. Nothing at all is an error of its own: the command before the pipe failed.
func (e *env) inputPolicy() ([]byte, error) {
	text, err := io.ReadAll(e.Stdin)
	if err != nil {
		return nil, fmt.Errorf("reading policy from standard input: %w", err)
	}
	if len(text) == 0 {
		return nil, &operate.OrderError{
			Problem: "standard input is empty: there is no policy", Remedy: "the command before the pipe wrote nothing; see whether it failed",
		}
	}
	return text, nil
}
