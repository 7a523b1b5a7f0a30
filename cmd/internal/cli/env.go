package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/daemon/operate"
	"github.com/floodwall/floodwall/internal/engine/statedir"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// Env is what a command has of the world around it.
type Env struct {
	UI
	Stdin       io.Reader
	Getenv      func(string) string
	CommandLine []string

	BPFFS    string // --bpffs
	StateDir string // --state, or what was found instead; "" as long as neither is
	JSON     bool   // --json
}

// DefaultState is where results and measurements are kept.
const DefaultState = "/var/lib/floodwall"

// globalFlags adds the flags that every command takes.
func (e *Env) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&e.BPFFS, "bpffs", datapath.DefaultDir, "`directory` of this instance in the BPF file system")
	f.StringVar(&e.StateDir, "state", "", "`directory` of bans, lists, reports and measurements (default that of the policy that runs, else "+DefaultState+")")
}

// State is the state directory: that of --state, or else that of the instance, or else the default. It is an error when the instance may have
// one that cannot be read.
func (e *Env) State() (string, error) {
	if e.StateDir == "" && Privileged() {
		dir, err := statedir.Of(e.BPFFS)
		if err != nil {
			return "", err
		}
		e.StateDir = dir
	}
	e.StateDir = cmp.Or(e.StateDir, DefaultState)
	return e.StateDir, nil
}

// OwnState is state for what keeps files that the daemon of the instance reads: a *statedir.Error when the instance uses another directory.
func (e *Env) OwnState() (string, error) {
	dir, err := e.State()
	if err != nil {
		return "", err
	}
	return dir, statedir.Check(e.BPFFS, dir)
}

// InstanceFlags are the flags that another command needs for this instance, each after a space: none for the default one.
func (e *Env) InstanceFlags() string {
	dir := e.StateOrDefault()
	if dir == DefaultState {
		dir = ""
	}
	return statedir.Flags(e.BPFFS, dir)
}

// StateOrDefault is state for commands that only read a policy or measure, and do without the instance: the default on an error.
func (e *Env) StateOrDefault() string {
	dir, err := e.State()
	if err != nil {
		return DefaultState
	}
	return dir
}

// JSONFlag adds --json to a command.
func (e *Env) JSONFlag(c *cobra.Command) {
	c.Flags().BoolVar(&e.JSON, "json", false, "print JSON")
}

// Host is the Floodwall that the flags name. It is an error when this process lacks the rights to reach it.
func (e *Env) Host() (operate.Host, error) {
	if !Privileged() {
		return operate.Host{}, &PrivilegeError{CommandLine: e.CommandLine}
	}
	state, err := e.State()
	if err != nil {
		return operate.Host{}, err
	}
	missing, err := statedir.Missing(e.BPFFS)
	if err != nil {
		return operate.Host{}, err
	}
	if missing != "" {
		e.Warning(fmt.Sprintf("the state directory of the policy that runs, %s, does not exist: its bans, lists and copies for boot are not seen; %s takes its place", missing, state))
		e.StderrLine("hint", "mount or restore it, and restart the daemon; if it is to go, apply the policy again")
	}
	return operate.NewHost(e.BPFFS, state, e.WarnOf), nil
}

// WarnOf warns of an error that does not end the command.
func (e *Env) WarnOf(err error) {
	for _, p := range operate.Problems(err) {
		e.Warning(p.String())
		e.StderrLine("hint", p.Hint)
	}
}
