package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/daemon/api"
	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/cost"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/sources/feed"
	"github.com/floodwall/floodwall/policy"
)

// env is what a command has of the world around it.
type env struct {
	ui
	stdin       io.Reader
	getenv      func(string) string
	commandLine []string

	bpffs    string // --bpffs
	stateDir string // --state, or what was found instead; "" as long as neither is
	json     bool   // --json
}

// defaultState is where results and measurements are kept.
const defaultState = "/var/lib/floodwall"

// globalFlags adds the flags that every command takes.
func (e *env) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&e.bpffs, "bpffs", datapath.DefaultDir, "`directory` of this instance in the BPF file system")
	f.StringVar(&e.stateDir, "state", "", "`directory` of bans, lists, reports and measurements (default that of the policy that runs, else "+defaultState+")")
}

// state is the state directory: that of --state, or else that of the instance, or else the default. It is an error when the instance may have
// one that cannot be read.
func (e *env) state() (string, error) {
	if e.stateDir == "" && privileged() {
		dir, err := statedir.Of(e.bpffs)
		if err != nil {
			return "", err
		}
		e.stateDir = dir
	}
	e.stateDir = cmp.Or(e.stateDir, defaultState)
	return e.stateDir, nil
}

// ownState is state for what keeps files that the daemon of the instance reads: a *statedir.Error when the instance uses another directory.
func (e *env) ownState() (string, error) {
	dir, err := e.state()
	if err != nil {
		return "", err
	}
	return dir, statedir.Check(e.bpffs, dir)
}

// instanceFlags are the flags that another command needs for this instance, each after a space: none for the default one.
func (e *env) instanceFlags() string {
	dir := e.stateOrDefault()
	if dir == defaultState {
		dir = ""
	}
	return statedir.Flags(e.bpffs, dir)
}

// stateOrDefault is state for commands that only read a policy or measure, and do without the instance: the default on an error.
func (e *env) stateOrDefault() string {
	dir, err := e.state()
	if err != nil {
		return defaultState
	}
	return dir
}

// jsonFlag adds --json to a command.
func (e *env) jsonFlag(c *cobra.Command) {
	c.Flags().BoolVar(&e.json, "json", false, "print JSON")
}

// host is the Floodwall that the flags name. It is an error when this process lacks the rights to reach it.
func (e *env) host() (operate.Host, error) {
	if !privileged() {
		return operate.Host{}, &privilegeError{commandLine: e.commandLine}
	}
	state, err := e.state()
	if err != nil {
		return operate.Host{}, err
	}
	missing, err := statedir.Missing(e.bpffs)
	if err != nil {
		return operate.Host{}, err
	}
	if missing != "" {
		e.warning(fmt.Sprintf("the state directory of the policy that runs, %s, does not exist: its bans, lists and copies for boot are not seen; %s takes its place", missing, state))
		e.stderrLine("hint", "mount or restore it, and restart the daemon; if it is to go, apply the policy again")
	}
	return operate.NewHost(e.bpffs, state, e.warnOf), nil
}

// daemonSocket is the socket at which the daemon of this instance answers questions: `daemon --run` may have put it anywhere.
func (e *env) daemonSocket() string {
	dir := cmp.Or(instance.LockOf(e.bpffs).Sockets(), api.Dir(e.bpffs, datapath.DefaultDir))
	return filepath.Join(dir, api.ReadSocket)
}

// warnOf warns of an error that does not end the command.
func (e *env) warnOf(err error) {
	for _, p := range operate.Problems(err) {
		e.warning(p.String())
		e.stderrLine("hint", p.Hint)
	}
}

// costs is the cost model of this host, nil when there is none that can be used.
func (e *env) costs() *cost.Model {
	return operate.NewHost(e.bpffs, e.stateOrDefault(), e.warnOf).Costs()
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
		return control.Compile(p, feed.InState(e.stateOrDefault()))
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
	text, err := io.ReadAll(e.stdin)
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
