package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/internal/control"
	"github.com/floodwall/floodwall/internal/doctor"
)

func doctorCommand(e *env) *cobra.Command {
	var all bool
	var devices []string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "what on this host costs packets, and what to do about it",
		Long: "Doctor shows what costs packets on this host, and the remedy for each finding. It changes nothing.\n" +
			"The exit status is 1 when a finding is a warning or a problem.",
		Example: "  floodwall doctor --all",
		Args:    none,
		RunE: func(c *cobra.Command, _ []string) error {
			o := doctor.Options{Instance: control.Instance{Dir: e.bpffs}, Devices: devices}
			return examine(c.Context(), e, o, all)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "list what is well, too")
	c.Flags().StringArrayVar(&devices, "device", nil, "of the devices look at this `device` only; repeat it for more")
	complete(c, "device", deviceNames()...)
	e.jsonFlag(c)
	return c
}

func examine(ctx context.Context, e *env, o doctor.Options, all bool) error {
	found, err := interruptible(ctx, func() ([]doctor.Finding, error) { return doctor.Look(ctx, o) })
	if err != nil {
		return err
	}
	if e.json {
		err = e.printJSON(shown(found, all))
	} else {
		printFindings(e, found, all)
	}
	if err == nil && doctor.Bad(found) {
		return errFailed
	}
	return err
}

// shown are the findings to print.
func shown(found []doctor.Finding, all bool) []doctor.Finding {
	list := []doctor.Finding{}
	for _, f := range found {
		if all || f.Severity != doctor.OK {
			list = append(list, f)
		}
	}
	return list
}

// printFindings prints findings by severity, the worst first, and a line that counts them.
func printFindings(e *env, found []doctor.Finding, all bool) {
	number := map[doctor.Severity]int{}
	for _, severity := range doctor.Severities {
		for _, f := range found {
			if f.Severity != severity {
				continue
			}
			number[severity]++
			if all || severity != doctor.OK {
				printFinding(e, f)
			}
		}
	}
	e.println("%s, %s, %s, %d ok", things(number[doctor.Problem], "problem", "problems"),
		things(number[doctor.Warning], "warning", "warnings"), things(number[doctor.Note], "note", "notes"), number[doctor.OK])
}

// printFinding prints a finding: what it is, and indented below it what was read, what it costs and what to do.
func printFinding(e *env, f doctor.Finding) {
	head := string(f.Severity) + ": " + f.ID
	if f.Device != "" {
		head += ", device " + f.Device
	}
	e.println("%s", head)
	indented(e, "evidence", wrapped(f.Evidence))
	indented(e, "cost", wrapped(f.Cost))
	if f.RemedyKind == doctor.Advice {
		indented(e, "remedy", wrapped(f.Remedy))
	} else { // to be copied as it is
		indented(e, "remedy", strings.Split(f.Remedy, "\n"))
	}
	if f.Severity != doctor.OK {
		e.println("")
	}
}

// indented prints a part of a finding; nothing when it has no text.
func indented(e *env, name string, lines []string) {
	if len(lines) == 1 && lines[0] == "" {
		return
	}
	for i, line := range lines {
		if i > 0 {
			name = ""
		}
		e.println("  %-9s %s", name, line)
	}
}

// textWidth is where lines of words end, in columns.
const textWidth = 100

// wrapped breaks a text between words. A word that is longer than a line has one of its own.
func wrapped(text string) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) > textWidth:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return lines
}
