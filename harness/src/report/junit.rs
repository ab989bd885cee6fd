//! For CI: each limit is a test case, and so is everything else that speaks against the run.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::terminal::kind;
use crate::{
    record::Record,
    verdict::{Judged, ReasonKind, Standing},
};

/// A record that JUnit's XML cannot carry.
#[derive(Debug, thiserror::Error)]
#[error("the record cannot be written as JUnit XML: {0}")]
pub struct JunitError(#[from] quick_junit::SerializeError);

/// Renders a record as JUnit XML. A criterion that does not hold is a failure; what makes the run inconclusive or
/// invalid is an error; a criterion that the control misses as well is skipped.
///
/// # Errors
/// When a text cannot be in XML.
pub fn junit(record: &Record) -> Result<String, JunitError> {
    let mut report = Report::new(format!("drainbench {}", record.scenario.name));
    let mut criteria = TestSuite::new("criteria");
    criteria
        .add_test_cases(record.verdict.criteria.iter().map(|judged| case(record, judged, criterion(judged))));
    let mut symptoms = TestSuite::new("symptoms");
    symptoms
        .add_test_cases(record.verdict.symptoms.iter().map(|judged| case(record, judged, symptom(judged))));
    let mut validity = TestSuite::new("validity");
    validity.add_test_cases(reasons(record));
    report.add_test_suites([criteria, symptoms, validity]);
    Ok(report.to_string()?)
}

fn case(record: &Record, judged: &Judged, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(format!("{}: {}", judged.cell, judged.rule()), status);
    case.set_classname(format!("{}.{}", record.scenario.name, judged.cell));
    case.set_system_out(format!("{} is {}", judged.metric, judged.found()));
    case
}

fn not(kind: NonSuccessKind, of: &str, judged: &Judged) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(of).set_message(format!("{} is {}", judged.metric, judged.found()));
    status
}

fn criterion(judged: &Judged) -> TestCaseStatus {
    match judged.standing {
        Standing::Held => TestCaseStatus::success(),
        Standing::Missed => not(NonSuccessKind::Failure, "criterion", judged),
        Standing::Split => not(NonSuccessKind::Error, "inconclusive", judged),
        Standing::Unmeasured => not(NonSuccessKind::Error, "invalid", judged),
        Standing::Excused => {
            let mut status = TestCaseStatus::skipped();
            status.set_message("the control misses it as well");
            status
        }
    }
}

fn symptom(judged: &Judged) -> TestCaseStatus {
    match judged.standing {
        Standing::Held | Standing::Excused => TestCaseStatus::success(),
        Standing::Missed | Standing::Split => not(NonSuccessKind::Error, "inconclusive", judged),
        Standing::Unmeasured => not(NonSuccessKind::Error, "invalid", judged),
    }
}

fn reasons(record: &Record) -> Vec<TestCase> {
    let speaks = |of: ReasonKind| match of {
        ReasonKind::Interrupted
        | ReasonKind::Environment
        | ReasonKind::Invalid
        | ReasonKind::Inconclusive => true,
        // Criteria and safety have a case of their own, notes decide nothing.
        ReasonKind::Safety | ReasonKind::Criterion | ReasonKind::Note => false,
    };
    let mut cases: Vec<TestCase> = record
        .verdict
        .reasons
        .iter()
        .filter(|reason| speaks(reason.kind))
        .map(|reason| {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_type(kind(reason.kind)).set_message(reason.text.as_str());
            TestCase::new(kind(reason.kind), status)
        })
        .collect();
    if cases.is_empty() {
        cases.push(TestCase::new("the run means what it says", TestCaseStatus::success()));
    }
    for case in &mut cases {
        case.set_classname(record.scenario.name.as_str());
    }
    cases
}
