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

// Program is what the text of an imported policy means, less the content of its list files, which need not be there yet.
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
		program.File = "" // of which messages would name the place: it is not written yet
	}
	return program, err
}

// allAtFilter is the line of a policy whose rules all run where those of the input ran, as they cannot be parted between
// the stages.
const allAtFilter = "placement: filter  # its rules cannot be parted between the stages of XDP\n"

// fit makes a policy of a body that `apply` takes on a host with XDP: as it is, or with all rules at filter. When neither
// can be, it reports which targets the policy is for, and returns the body as it is.
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

// compiles is the error that a policy is nothing that a target can have, or nil.
func compiles(text string, t plan.Target, devices []string) error {
	p, err := Program(text)
	if err != nil {
		return err
	}
	optimized, _ := compile.Optimize(p)
	_, err = compile.Compile(optimized, t, devices)
	return err
}
