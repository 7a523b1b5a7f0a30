// Package rig is what experiments are built of: sites in a lab, what is installed there, the tools and lists that are
// compared, and the rates and times that are measured. An experiment is in lab/experiment.
package rig
