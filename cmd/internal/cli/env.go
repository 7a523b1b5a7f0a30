// SPDX-License-Identifier: Apache-2.0

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

// Env is the environment of a command: its output and the global flags.
type Env struct {
	UI
	Stdin       io.Reader
	Getenv      func(string) string
	CommandLine []string

	BPFFS    string // --bpffs
	StateDir string // --state, or the instance's directory; "" until it is known
	JSON     bool   // --json
}

// DefaultState is the default state directory, for results and measurements.
const DefaultState = "/var/lib/floodwall"

// globalFlags adds the flags of all commands.
func (e *Env) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&e.BPFFS, "bpffs", datapath.DefaultDir, "`directory` of this instance in the BPF file system")
	f.StringVar(&e.StateDir, "state", "", "`directory` of bans, lists, reports and measurements (default that of the policy that runs, else "+DefaultState+")")
}

// State returns the state directory: the directory of --state, else that of the instance, else the default. It returns an error when the instance may
// have a state directory that cannot be read.
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

// OwnState returns the state directory for commands that write files for the daemon of the instance. It returns a *statedir.Error when the instance
// uses another directory.
func (e *Env) OwnState() (string, error) {
	dir, err := e.State()
	if err != nil {
		return "", err
	}
	return dir, statedir.Check(e.BPFFS, dir)
}

// InstanceFlags returns the flags that make another command use this instance. A space precedes each flag. The result is empty for the default
// instance.
func (e *Env) InstanceFlags() string {
	dir := e.StateOrDefault()
	if dir == DefaultState {
		dir = ""
	}
	return statedir.Flags(e.BPFFS, dir)
}

// StateOrDefault returns the state directory, or the default directory on an error. It is for commands that measure or only read a policy, and so do
// not need the instance.
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

// Host returns the instance that the flags name. It returns an error when this process lacks the rights to access the instance.
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

// WarnOf prints an error as a warning. It is for errors that do not end the command.
func (e *Env) WarnOf(err error) {
	for _, p := range operate.Problems(err) {
		e.Warning(p.String())
		e.StderrLine("hint", p.Hint)
	}
}
