// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/host/firstpolicy"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

func initCommand(e *env) *cobra.Command {
	var devices []string
	c := &cobra.Command{
		Use:   "init [FILE]",
		Short: "write a first policy for what this host serves, each line explained",
		Long: "Init writes policy.yaml, or FILE, with a service for each port that is served now. It applies nothing, and replaces no file.\n" +
			"With - for FILE it prints the policy.",
		Example: "  floodwall init\n  floodwall apply policy.yaml --confirm 60s",
		Args:    cli.UpTo(1, "FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			file := "policy.yaml"
			if len(args) > 0 {
				file = args[0]
			}
			return e.writeFirst(file, devices)
		},
	}
	c.Flags().StringArrayVar(&devices, "device", nil, "`device` where packets from outside arrive (default those of the default routes); repeat it for more")
	complete(c, "device", deviceNames()...)
	return c
}

func (e *env) writeFirst(file string, devices []string) error {
	name := file
	if file == "-" {
		name = "policy.yaml"
	}
	h, text, err := firstPolicy(name, devices, "floodwall init --device eth0")
	if err != nil {
		return err
	}
	if file == "-" {
		e.Text(text)
		return nil
	}
	if err := safefile.Create(file, []byte(text), 0o644); errors.Is(err, os.ErrExist) {
		return wording.WithHint(fmt.Errorf("%s exists, and stays as it is", file), "name another file: floodwall init FILE")
	} else if err != nil {
		return err
	}
	e.Println("wrote %s: %s on %s", file, wording.Things(len(h.Services), "service", "services"), wording.Things(len(h.Devices), "device", "devices"))
	if closed := h.Closed(); closed != "" {
		e.Println("left closed: %s", closed)
	}
	e.Println("read it, then: floodwall apply %s --confirm 60s", file)
	return nil
}

// firstPolicy surveys this host, and returns the text of its first policy. named is a command that names a device.
func firstPolicy(file string, devices []string, named string) (h *firstpolicy.Host, text string, err error) {
	h, err = firstpolicy.ReadHost(devices)
	if errors.Is(err, firstpolicy.ErrNoDevice) {
		err = wording.WithHint(err, "name it: "+named)
	}
	if err != nil {
		return nil, "", err
	}
	text = h.Policy(file)
	if err := checks(file, text); err != nil {
		return nil, "", fmt.Errorf("the policy that was made for this host is not valid, which is a defect of floodwall: %w", err)
	}
	return h, text, nil
}

// checks returns the errors of a policy's text. It compiles the policy for XDP, the target that supports most.
func checks(file, text string) error {
	c, err := control.CompileSource(file, []byte(text))
	if err == nil {
		_, err = c.Output(plan.TargetXDP)
	}
	return err
}
