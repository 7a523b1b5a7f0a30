// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/internal/os/periodic"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// importFlags are the flags of import.
type importFlags struct {
	output, geo           string
	devices               []string
	router, strict, force bool
}

func importCommand(e *env) *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import FORMAT FILE...",
		Short: "turn the rules of iptables, ipset or nft into a policy",
		Long: "Import turns rules of iptables, ip6tables, ipset or nft into a policy with the same verdicts.\n" +
			"It names each rule that it cannot carry over, with its line. - is standard input.",
		Example: "  iptables-save | floodwall import iptables-save -\n" +
			"  floodwall import iptables-save rules.v4 rules.v6 ipset.save --output policy.yaml\n" +
			"  nft -j list ruleset | floodwall import nft - --device eth0",
		Args: importArgs,
		RunE: func(c *cobra.Command, args []string) error { return importRules(c.Context(), e, args, f) },
	}
	c.Flags().StringVar(&f.geo, "geo", "", "a database `file` of countries (mmdb), for rules that ask for countries")
	c.Flags().StringVarP(&f.output, "output", "o", "", "write the policy to this `file`, and large sets to list files beside it")
	c.Flags().StringSliceVar(&f.devices, "device", nil, "the `device` where packets come in from outside; those that the rules name, if not said")
	c.Flags().BoolVar(&f.router, "router", false, "this host forwards packets, even if chain FORWARD has no rules")
	c.Flags().BoolVar(&f.strict, "strict", false, "fail when anything has no equal, or when the policy passes everything and the files do not")
	c.Flags().BoolVar(&f.force, "force", false, "overwrite the files of --output")
	e.JSONFlag(c)
	return c
}

// importArgs returns a usage error unless there are a format and files.
func importArgs(c *cobra.Command, args []string) error {
	const formats = "the formats are iptables-save, ip6tables-save, ipset and nft"
	if len(args) == 0 {
		return cli.Usagef(c, formats, "missing argument: want FORMAT and FILE")
	}
	known := false
	for _, f := range importer.Formats {
		known = known || args[0] == string(f)
	}
	switch {
	case !known:
		return cli.Usagef(c, formats, "unknown format %q", args[0])
	case len(args) == 1:
		return cli.Usagef(c, "- reads standard input", "missing argument: want FILE")
	case args[0] == string(importer.Nft) && len(args) > 2:
		return cli.Usagef(c, "nft list ruleset prints all tables into one file", "unexpected argument %q", args[2])
	}
	return nil
}

func importRules(ctx context.Context, e *env, args []string, f importFlags) error {
	sources, err := e.sources(args[1:])
	if err != nil {
		return err
	}
	if f.output != "" && !f.force {
		if _, err := os.Stat(f.output); err == nil {
			return wording.WithHint(fmt.Errorf("%s: it exists", f.output), "use --force to overwrite it")
		}
	}
	if f.geo != "" {
		if f.geo, err = filepath.Abs(f.geo); err != nil {
			return err
		}
	}
	result, err := periodic.Within(ctx, func() (*importer.Result, error) {
		return importer.Import(ctx, sources, importer.Options{
			Format: importer.Format(args[0]), Devices: f.devices, Router: f.router, Geo: f.geo, ListFiles: f.output != "",
		})
	})
	if err != nil {
		return err
	}
	return e.imported(result, f)
}

// importReport is the output of import as JSON.
type importReport struct {
	Policy    string            `json:"policy"` // its text
	Rules     int               `json:"rules"`
	Drops     importer.Drops    `json:"drops"`
	Open      string            `json:"open,omitempty"`    // why the policy passes everything
	Differs   string            `json:"differs,omitempty"` // how verdicts differ from those of the files, for a reason that lost does not list
	Unfit     string            `json:"unfit,omitempty"`   // why check refuses the policy, and which target it still fits
	Sets      int               `json:"sets"`
	LostRules int               `json:"lost_rules"`
	Lost      []importer.Remark `json:"lost"`
	Notes     []importer.Remark `json:"notes"`
	Holds     []leftCheck       `json:"structural,omitempty"` // checks that apply although the policy disables them, and why
}

// imported prints or writes the imported policy, and the parts that were not imported.
func (e *env) imported(r *importer.Result, f importFlags) error {
	e.remarks(r)
	lost := r.LostRules()
	if r.Open != "" && f.strict {
		return wording.WithHint(fmt.Errorf("the policy passes everything: %s", r.Open), "say with --device through which packets come in from outside, or see the notes")
	}
	if r.Differs != "" && f.strict {
		return wording.WithHint(fmt.Errorf("the policy differs from the files: %s", r.Differs), "report it with the files; without --strict the policy is printed all the same")
	}
	if r.Unfit != "" && f.strict {
		return wording.WithHint(fmt.Errorf("`check` refuses the policy: %s", r.Unfit), "without --strict the policy is printed all the same")
	}
	if lost > 0 && f.strict {
		return wording.WithHint(fmt.Errorf("%s no equal", have(lost)), "without --strict the policy is printed all the same")
	}
	if f.output != "" {
		if err := writeImported(r, f); err != nil {
			return err
		}
	}
	if e.JSON {
		return e.PrintJSON(importReport{
			r.Policy, r.Rules, r.Drops, r.Open, r.Differs, r.Unfit, r.Sets, lost, append([]importer.Remark{}, r.Lost...), append([]importer.Remark{}, r.Notes...),
			structural(importedProgram(r.Policy)),
		})
	}
	if f.output == "" {
		e.Text(r.Policy)
	}
	if holds := importedProgram(r.Policy).Structural(); holds != nil {
		e.Note("the policy adds checks that its rules rest on: " + ir.StructuralText(holds))
	}
	summary := fmt.Sprintf("%s and %s in the policy", wording.Things(r.Rules, "rule", "rules"), wording.Things(r.Sets, "set", "sets"))
	if d := r.Drops; d.Input > 0 {
		summary += fmt.Sprintf("; of %d rules and chain policies that drop, %d are in it, %d are lost, %d are about no packet from outside",
			d.Input, d.Policy, d.Lost, d.Aside)
	}
	if lost > 0 {
		summary += fmt.Sprintf("; %s no equal, wholly or in part", have(lost))
	}
	e.Note(summary)
	return nil
}

// importedProgram returns the program of an imported policy. If the policy cannot be parsed, the program is empty. Unfit has the error.
func importedProgram(text string) *ir.Program {
	if p, err := importer.Program(text); err == nil {
		return p
	}
	return &ir.Program{}
}

// remarks prints the parts that were not imported. With --json it prints nothing, because the output contains them.
func (e *env) remarks(r *importer.Result) {
	if e.JSON {
		return
	}
	if r.Open != "" {
		e.Warning("the policy passes everything: " + r.Open)
	}
	if r.Differs != "" {
		e.Warning("the policy differs from the files: " + r.Differs)
	}
	if r.Unfit != "" {
		e.Warning("`check` refuses the policy: " + r.Unfit)
	}
	if r.Drops.Lost > 0 {
		e.Warning(fmt.Sprintf("the policy is more open than the files: of %d rules and chain policies that drop, %d have no equal",
			r.Drops.Input, r.Drops.Lost))
	}
	for _, l := range r.Lost {
		e.Warning(l.String())
	}
	for _, n := range r.Notes {
		e.Note(n.String())
	}
}

// have returns the subject and the verb of a sentence about a number of rules.
func have(rules int) string { return wording.Things(rules, "rule has", "rules have") }

// sources reads the named files. The name - is standard input.
func (e *env) sources(names []string) (sources []importer.Source, err error) {
	stdin := 0
	for _, name := range names {
		s := importer.Source{Name: name}
		if name == "-" {
			if stdin++; stdin > 1 {
				return nil, errors.New("standard input: - stands twice, and there is only one")
			}
			s.Name = "stdin"
			s.Data, err = io.ReadAll(e.Stdin)
		} else {
			s.Data, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, fileError(err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// fileError rewrites an error about a file in the form FILE: message.
func fileError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Path, p.Err)
	}
	return err
}

// writeImported writes the list files first. The policy, which refers to them, is written last.
func writeImported(r *importer.Result, f importFlags) error {
	dir := filepath.Dir(f.output)
	for _, l := range r.Lists {
		path := filepath.Join(dir, l.Name)
		if _, err := os.Stat(path); err == nil && !f.force {
			return wording.WithHint(fmt.Errorf("%s: it exists", path), "use --force to overwrite it")
		}
		if err := os.WriteFile(path, l.Data, 0o644); err != nil {
			return fileError(err)
		}
	}
	if err := os.WriteFile(f.output, []byte(r.Policy), 0o644); err != nil {
		return fileError(err)
	}
	return nil
}
