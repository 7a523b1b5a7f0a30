// Package suggest finds rules against an attack: conjunctions of match keys that most packets of the attack have, and hardly any
// legitimate packet has. It enters no rule.
//
// The search is sequential covering with a beam search inside (CN2: Clark and Niblett, "The CN2 Induction Algorithm", Machine Learning
// 3, 1989), over bit sets of samples, so its time and memory are bounded by the number of samples. Each rule is then narrowed: it gets
// every key that almost all of its packets of the attack share and many legitimate packets do not. Narrow rules touch least of the
// legitimate traffic that no baseline shows.
//
//	found, err := suggest.Find(suggest.Input{Program: program, Attack: now, Good: baseline, Collateral: 0.001})
//	for _, rule := range found.Rules { // each with the harm that it would do
//		show(rule)
//	}
package suggest
