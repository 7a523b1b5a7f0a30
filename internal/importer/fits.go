// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/floodwall/floodwall/internal/compile"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/importer/saved"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
)

// Program compiles the text of an imported policy without the content of its list files, which may not exist yet.
func Program(text string) (*ir.Program, error) {
	p, err := policy.Parse("imported policy", []byte(text))
	if err != nil {
		return nil, err
	}
	for i := range p.Sets {
		if p.Sets[i].File != "" {
			p.Sets[i].File, p.Sets[i].Inline = "", []policy.AddrRange{}
		}
	}
	program, _, err := compile.Lower(p)
	if program != nil {
		program.File = "" // messages would name it, but the file is not written yet
	}
	return program, err
}

// allAtFilter is the line of a policy that runs all rules at the stage of the imported rules. It is needed when the rules cannot be divided between
// the stages.
const allAtFilter = "placement: filter  # its rules cannot be parted between the stages of XDP\n"

// fit returns a policy that `apply` accepts on a host with XDP. It is the body unchanged, or with all rules at filter. If neither works, fit
// records the reason and the targets that accept the policy, and returns the body unchanged.
func (w *writer) fit(body string, devices []string, at saved.Place) string {
	err := compiles(body, plan.TargetXDP, devices)
	var place *plan.StageError
	if err == nil {
		return body
	}
	if errors.As(err, &place) {
		first, rest, _ := strings.Cut(body, "\n")
		late := first + "\n" + allAtFilter + rest
		if compiles(late, plan.TargetXDP, devices) == nil {
			w.report.Note(at, "all rules run at filter, behind XDP: %v", err)
			return late
		}
	}
	targets := []string{}
	for _, t := range []plan.Target{plan.TargetNftables, plan.TargetIptables} {
		if compiles(body, t, devices) == nil {
			targets = append(targets, "--target "+string(t))
		}
	}
	w.unfit = fmt.Sprint(err)
	if len(targets) > 0 {
		w.unfit += "; `apply` takes it with " + strings.Join(targets, " or ")
	}
	return body
}

// compiles returns the error if a policy cannot be compiled for a target, or nil.
func compiles(text string, t plan.Target, devices []string) error {
	p, err := Program(text)
	if err != nil {
		return err
	}
	optimized, _ := compile.Optimize(p)
	_, err = compile.Compile(optimized, t, devices)
	return err
}
