// SPDX-License-Identifier: Apache-2.0

// Package rig has the parts of experiments. A Site is built in a lab, and a Guard says what is installed there. The package has the tools and
// lists that are compared. Session.Run is the runner: its rows (Row) take turns. A Table publishes their figures. The experiments are in
// cmd/floodwall-lab/experiment.
//
//	err := rig.InLab(ctx, func(l *lab.Lab) error {
//		site, err := rig.NewSite(l, 1)
//		held, err = site.Install(ctx, rig.RulesPolicy(1000), rig.TargetOptions("xdp"))
//		return err
//	})
package rig
