// Package rig is what experiments are built of: sites in a lab, what is installed there, the tools and lists that are
// compared, and the rates and times that are measured. An experiment is in lab/experiment.
//
//	err := rig.InLab(ctx, func(l *lab.Lab) error {
//		site, err := rig.NewSite(l, 1)
//		held, err = site.Install(ctx, rig.RulesPolicy(1000), rig.TargetOptions("xdp"))
//		return err
//	})
package rig
