// SPDX-License-Identifier: Apache-2.0

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

// daemonSocket is the API socket of this instance's daemon. `daemon --run` can change its directory.
func (e *env) daemonSocket() string {
	dir := cmp.Or(instance.LockOf(e.BPFFS).Sockets(), api.Dir(e.BPFFS, datapath.DefaultDir))
	return filepath.Join(dir, api.ReadSocket)
}

// costs returns the cost model of this host, or nil when no usable model exists.
func (e *env) costs() *cost.Model {
	return operate.NewHost(e.BPFFS, e.StateOrDefault(), e.WarnOf).Costs()
}

// stdinWord is the argument that selects standard input instead of a policy file.
const stdinWord = "-"

// policyArg is the name of the policy argument in usage messages.
const policyArg = "POLICY, a file (- is standard input)"

// policyName is the name of a policy in messages.
func policyName(file string) string {
	if file == stdinWord {
		return policy.Stdin
	}
	return file
}

// compiled parses a policy and compiles it to its intermediate representation.
func (e *env) compiled(ctx context.Context, file string) (*control.Compiled, error) {
	return periodic.Within(ctx, func() (*control.Compiled, error) {
		p, err := e.readSound(file)
		if err != nil {
			return nil, err
		}
		return control.Compile(p, feed.InState(e.StateOrDefault()))
	})
}

// readSound parses a policy from its file or from standard input. If parts of the policy are invalid, it returns the errors together with the valid
// part, as policy.ParseSound does.
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

// inputPolicy reads the text of a policy from standard input. Empty input has an error of its own, because it means that the command before the pipe
// failed.
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
