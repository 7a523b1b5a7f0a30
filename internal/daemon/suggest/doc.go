// SPDX-License-Identifier: Apache-2.0

// Package suggest finds rules against an attack: conjunctions of match keys that most packets of the attack pass, and hardly any legitimate packet
// passes. It applies no rule.
//
// The search is sequential covering with a beam search inside (CN2: Clark and Niblett, "The CN2 Induction Algorithm", Machine Learning 3, 1989). It
// uses bit sets of samples, so the number of samples limits its time and memory. Then each rule is narrowed: keys are added to it that almost all of
// its attack packets pass and many legitimate packets do not. A baseline may lack some legitimate traffic; narrow rules harm such traffic least.
//
//	found, err := suggest.Find(suggest.Input{Program: program, Attack: now, Good: baseline, Collateral: 0.001})
//	for _, rule := range found.Rules { // each with the harm that it would do
//		show(rule)
//	}
package suggest
