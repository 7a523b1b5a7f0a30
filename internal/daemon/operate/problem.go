// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/lists"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/policy"
)

// Problem is an error in a form for people and programs.
type Problem struct {
	Text  string `json:"error"`
	Hint  string `json:"hint,omitempty"`  // the remedy
	Where string `json:"where,omitempty"` // FILE:LINE:COLUMN in a policy

	Line, Col int `json:"-"` // position in Where; 0 when there is no position
}

// String returns the problem as one line, without the hint.
func (p Problem) String() string {
	if p.Where == "" {
		return p.Text
	}
	return p.Where + ": " + p.Text
}

// Problems returns all errors that are joined in err.
func Problems(err error) (list []Problem) {
	if saved, ok := err.(*SavedError); ok {
		err = saved.Err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, Problems(e)...)
		}
		return list
	}
	return []Problem{problem(err)}
}

func problem(err error) Problem {
	if s, ok := err.(*plan.StageError); ok && s.Line > 0 && s.File != "" {
		return Problem{s.Text(), s.Remedy, fmt.Sprintf("%s:%d:%d", s.File, s.Line, s.Col), s.Line, s.Col}
	}
	var p *policy.Error
	if errors.As(err, &p) {
		return Problem{p.Msg, p.Hint, fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col), p.Line, p.Col}
	}
	return Problem{Text: err.Error(), Hint: hint(err)}
}

// hint is the remedy for an error, or "".
func hint(err error) string {
	var h interface{ Hint() string }
	switch {
	case errors.As(err, &h):
		return h.Hint()
	case errors.Is(err, datapath.ErrNotLoaded) && datapath.StateHidden():
		return "no BPF file system is mounted here, as under `ip netns exec NS`, which hides what runs: use `nsenter --net=/run/netns/NS` in its place"
	case errors.Is(err, datapath.ErrNotLoaded):
		return "`floodwall on` turns it on, and `floodwall apply POLICY` loads a policy of yours; an instance in another place is named with --bpffs"
	case errors.Is(err, lists.ErrNoFeed):
		return "`floodwall feeds` lists those that there are"
	case errors.Is(err, unix.ENOSPC):
		return "make space on the file system of this file, and try again"
	case errors.Is(err, ErrNoneHeld):
		return "`floodwall feeds` shows which lists are held; one that was accepted is in force"
	case errors.Is(err, unix.EPERM) && !errors.As(err, new(*fs.PathError)) && !errors.As(err, new(*os.LinkError)): // the error is from a system call such as bpf(2) or setns(2)
		return "this process lacks a capability, or the seccomp profile of its container, lockdown or a security module refuses the call: " +
			"docs/guides/containers.md has what a container needs"
	case errors.Is(err, datapath.ErrLocked):
		return "wait until the other one is done"
	}
	return ""
}
