//! Turns `randvar` and `cvar` into random variables.

use super::super::random::{Distribution, RandomVariable};
use super::builder::PlanBuilder;
use super::values::{ResolvedValue, Scope};
use crate::wml::{
    AssignedValue, AttributeList, AttributeValue, SourcePosition, WmlError, WorkloadScript,
    did_you_mean,
};

/// Limits the shape of an Erlang distribution.
const ERLANG_MAX: f64 = 1e6;
const TYPES: &[&str] = &[
    "cvar-uniform",
    "cvar-normal",
    "cvar-lognormal",
    "cvar-exponential",
    "cvar-gamma",
    "cvar-erlang",
    "cvar-weibull",
    "cvar-triangular",
];

/// Reads the definition of a random variable.
struct VariableReader<'a> {
    script: &'a WorkloadScript,
    scope: &'a Scope<'a>,
    place: SourcePosition,
    name: &'a str,
    attributes: &'a AttributeList,
}

impl VariableReader<'_> {
    fn read_number(&self, name: &str) -> Result<Option<f64>, WmlError> {
        match self.attributes.get(name) {
            Some(found) => Ok(Some(self.scope.resolve_fixed(self.script, found)? as f64)),
            None => Ok(None),
        }
    }

    fn read_word(&self, name: &str) -> Result<Option<(String, SourcePosition)>, WmlError> {
        let Some(attribute) = self.attributes.get(name) else {
            return Ok(None);
        };
        Ok(Some((
            self.scope.resolve_text(self.script, attribute)?,
            attribute.place,
        )))
    }

    /// Returns the distribution of a `randvar`. Types are Filebench's; gamma is the default.
    fn read_distribution(&self, rows: &[[AttributeValue; 3]]) -> Result<Distribution, WmlError> {
        let (kind, at) = match self.read_word("type")? {
            Some(found) => found,
            None => ("gamma".into(), self.place),
        };
        match kind.as_str() {
            "uniform" => Ok(Distribution::Uniform),
            "gamma" => {
                let gamma = self.read_number("gamma")?.unwrap_or(1500.0);
                if gamma > 0.0 {
                    return Ok(Distribution::Gamma(gamma / 1000.0));
                }
                let message = "gamma=0 is no shape; 1500 is the default, and means 1.5";
                Err(self.script.error_at(at, message))
            }
            "tabular" => Ok(Distribution::Tabular(resolve_table(
                self.script,
                self.scope,
                at,
                rows,
            )?)),
            other => {
                let message =
                    format!("'{other}' is no type of randvar; there are uniform, gamma, tabular");
                Err(self.script.error_at(at, message))
            }
        }
    }

    /// Refuses a source of random numbers that the language does not have.
    fn check_source(&self) -> Result<(), WmlError> {
        // Both sources mean the seeded stream here, so that runs can be repeated.
        let Some((source, at)) = self.read_word("randsrc")? else {
            return Ok(());
        };
        if ["urandom", "rand48"].contains(&source.as_str()) {
            return Ok(());
        }
        let message =
            format!("'{source}' is no source of random numbers; there are urandom and rand48");
        Err(self.script.error_at(at, message))
    }

    fn read_randvar(&self, rows: &[[AttributeValue; 3]]) -> Result<RandomVariable, WmlError> {
        let (script, place, name) = (self.script, self.place, self.name);
        let mean = self.read_number("mean")?;
        let spread = self.read_distribution(rows)?;
        // An even distribution without a mean has no bounds.
        if spread == Distribution::Uniform && mean.is_none() {
            let message = format!("${name} is uniform and has no mean; say mean=…");
            return Err(script.error_at(place, message));
        }
        // A mean below the least value cannot be reached by values above it.
        let min = self.read_number("min")?.unwrap_or(0.0);
        if let Some(mean) = mean
            && mean < min
        {
            let message =
                format!("${name} has mean {mean} below its min {min}; it is never below that");
            return Err(script.error_at(place, message));
        }
        self.check_source()?;
        // randvar has no largest value.
        Ok(RandomVariable {
            name: name.to_owned(),
            distribution: spread,
            min,
            max: f64::INFINITY,
            mean,
            round: self.read_number("round")?.unwrap_or(0.0),
            seed: self.read_number("seed")?.unwrap_or(0.0) as u64,
        })
    }

    /// Returns the distribution of a `cvar`.
    fn read_custom_distribution(&self) -> Result<Distribution, WmlError> {
        let Some((kind, at)) = self.read_word("type")? else {
            let message = format!("${} needs a type: {}", self.name, TYPES.join(", "));
            return Err(self.script.error_at(self.place, message));
        };
        // The type is looked at first: without it the parameters cannot be judged.
        let parameters = self.read_word("parameters")?;
        let Some(names) = parameters_of(&kind) else {
            let hint = did_you_mean(&kind, TYPES.iter().copied());
            let message = format!(
                "'{kind}' is no type of cvar{hint}; there are {}",
                TYPES.join(", ")
            );
            return Err(self.script.error_at(at, message));
        };
        let (text, at_parameters) = match parameters {
            Some((text, at)) => (text, at),
            None => (String::new(), self.place),
        };
        match parameter_values(&kind, self.name, names, &text) {
            Ok(values) => Ok(distribution_of(&kind, &values)),
            Err(message) => Err(self.script.error_at(at_parameters, message)),
        }
    }

    fn read_cvar(&self) -> Result<RandomVariable, WmlError> {
        let spread = self.read_custom_distribution()?;
        // cvar has both bounds, randvar only the lower one.
        let min = self.read_number("min")?.unwrap_or(0.0);
        let max = self.read_number("max")?.unwrap_or(f64::INFINITY);
        if min > max {
            let message = format!("${} has min {min} above its max {max}", self.name);
            return Err(self.script.error_at(self.place, message));
        }
        Ok(RandomVariable {
            name: self.name.to_owned(),
            distribution: spread,
            min,
            max,
            mean: None,
            round: self.read_number("round")?.unwrap_or(0.0),
            seed: 0,
        })
    }
}

impl PlanBuilder<'_> {
    pub(super) fn assign_variable(
        &mut self,
        place: SourcePosition,
        name: &str,
        assigned: &AssignedValue,
    ) -> Result<(), WmlError> {
        let scope = Scope::global(&self.variables);
        // Both kinds of random variables are read by the same rules.
        let reader = |attributes| VariableReader {
            script: self.script,
            scope: &scope,
            place,
            name,
            attributes,
        };
        let random = match assigned {
            AssignedValue::Value(value) => {
                let resolved = scope.resolve_value(self.script, place, value)?;
                self.variables.assign(name, resolved);
                return Ok(());
            }
            AssignedValue::Random(attributes, rows) => reader(attributes).read_randvar(rows)?,
            AssignedValue::Custom(attributes) => reader(attributes).read_cvar()?,
        };
        // Random variables become entries of the plan, which attributes refer to by number.
        self.plan.randoms.push(random);
        let number = self.plan.randoms.len() - 1;
        self.variables.assign(name, ResolvedValue::Random(number));
        Ok(())
    }
}

/// Returns the hundred slots of a table, in its order.
fn resolve_table(
    script: &WorkloadScript,
    scope: &Scope<'_>,
    place: SourcePosition,
    rows: &[[AttributeValue; 3]],
) -> Result<Vec<(f64, f64)>, WmlError> {
    let mut slots = Vec::new();
    // Each row is checked on its own, then their sum.
    for row in rows {
        let mut numbers = [0.0; 3];
        for (number, value) in numbers.iter_mut().zip(row) {
            match scope.resolve_value(script, place, value)? {
                ResolvedValue::Int(n) => *number = n as f64,
                _ => {
                    return Err(script.error_at(
                        place,
                        "a randtable holds numbers: {{percent, low, high}, …}",
                    ));
                }
            }
        }
        let [percent, low, high] = numbers;
        if low > high || percent > 100.0 {
            let message =
                format!("the row {{{percent}, {low}, {high}}} is not {{percent, low, high}}");
            return Err(script.error_at(place, message));
        }
        // A row of n percent takes n slots.
        slots.extend(std::iter::repeat_n((low, high), percent as usize));
    }
    if slots.len() != 100 {
        let message = format!(
            "the percentages of a randtable add up to 100, not to {}",
            slots.len()
        );
        return Err(script.error_at(place, message));
    }
    Ok(slots)
}

/// Returns the parameters of a type, with their defaults.
fn parameters_of(kind: &str) -> Option<&'static [ParameterDefault]> {
    Some(match kind {
        "cvar-uniform" => &[("lower", 0.0), ("upper", 1.0)],
        "cvar-normal" => &[("mean", 0.0), ("sigma", 1.0)],
        "cvar-lognormal" | "cvar-weibull" => &[("shape", 1.0), ("scale", 1.0)],
        "cvar-exponential" => &[("mean", 1.0)],
        "cvar-gamma" => &[("mean", 4096.0), ("gamma", 1.5)],
        "cvar-erlang" => &[("shape", 1.0), ("rate", 1.0)],
        "cvar-triangular" => &[("lower", 0.0), ("upper", 1.0), ("mode", 0.5)],
        _ => return None,
    })
}

/// Returns the fault of the parameters of a type.
fn parameter_error(kind: &str, value: impl Fn(&str) -> Option<f64>) -> Option<String> {
    // The order of the checks is that of their importance.
    match (value("lower"), value("upper"), value("mode")) {
        (Some(lower), Some(upper), _) if lower > upper => {
            Some(format!("lower {lower} is above upper {upper}"))
        }
        (Some(lower), Some(upper), Some(mode)) if !(lower..=upper).contains(&mode) => Some(
            format!("mode {mode} is not between lower {lower} and upper {upper}"),
        ),
        _ if value("sigma").is_some_and(|sigma| sigma < 0.0) => Some("sigma is below 0".to_owned()),
        _ if value("mean").is_some_and(|mean| mean < 0.0) => {
            Some("mean is below 0, and no value can be".to_owned())
        }
        _ if kind == "cvar-erlang" && value("shape").is_some_and(|shape| shape > ERLANG_MAX) => {
            Some(format!(
                "shape is more than {ERLANG_MAX}: each value is a sum of so many"
            ))
        }
        _ => None,
    }
}

/// Names a parameter, with its default.
type ParameterDefault = (&'static str, f64);

/// Returns the values of the parameters. Those that are not given keep their defaults.
fn read_parameters(
    kind: &str,
    names: &[ParameterDefault],
    given: &[&str],
) -> Result<Vec<f64>, String> {
    let mut values: Vec<f64> = names.iter().map(|(_, default)| *default).collect();
    for parameter in given {
        // A pair without a number is no parameter.
        let pair = parameter
            .split_once(':')
            .and_then(|(key, value)| Some((key, value.parse::<f64>().ok()?)));
        let found = pair.and_then(|(key, value)| {
            Some((names.iter().position(|(name, _)| *name == key)?, value))
        });
        let Some((at, value)) = found.filter(|(_, value)| value.is_finite()) else {
            let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "'{parameter}' is no parameter of {kind}; write name:number with {}",
                known.join(", ")
            ));
        };
        values[at] = value;
    }
    Ok(values)
}

/// Checks the values of the parameters, each alone and all together.
fn check_parameters(
    kind: &str,
    variable: &str,
    names: &[ParameterDefault],
    values: &[f64],
) -> Result<(), String> {
    debug_assert_eq!(names.len(), values.len(), "each parameter has a value");
    // These parameters divide, or are exponents.
    let positive = ["shape", "rate", "gamma", "scale"];
    for ((name, _), value) in names.iter().zip(values) {
        if positive.contains(name) && *value <= 0.0 {
            return Err(format!("'{name}' of {kind} is {value}; it must be above 0"));
        }
    }
    // The other checks read the parameters by name.
    let named = |wanted: &str| {
        let at = names.iter().position(|(name, _)| *name == wanted)?;
        Some(values[at])
    };
    match parameter_error(kind, named) {
        Some(nonsense) => Err(format!("${variable}, a {kind}: {nonsense}")),
        None => Ok(()),
    }
}

/// Returns the checked values of the parameters of a type, which are one string:
/// `name:number;name:number`.
fn parameter_values(
    kind: &str,
    variable: &str,
    names: &[ParameterDefault],
    text: &str,
) -> Result<Vec<f64>, String> {
    // A semicolon at the end leaves an empty part, which is no fault.
    let mut given = Vec::new();
    for parameter in text.split(';') {
        if !parameter.is_empty() {
            given.push(parameter);
        }
    }
    let values = read_parameters(kind, names, &given)?;
    check_parameters(kind, variable, names, &values)?;
    Ok(values)
}

/// Returns the distribution of a type. The order of the values is that of [`parameters_of`].
fn distribution_of(kind: &str, values: &[f64]) -> Distribution {
    match kind {
        "cvar-uniform" => Distribution::Between(values[0], values[1]),
        "cvar-normal" => Distribution::Normal(values[0], values[1]),
        "cvar-lognormal" => Distribution::LogNormal(values[0], values[1]),
        "cvar-weibull" => Distribution::Weibull(values[0], values[1]),
        "cvar-exponential" => Distribution::Exponential(values[0]),
        "cvar-gamma" => Distribution::GammaOf(values[0], values[1]),
        "cvar-erlang" => Distribution::Erlang(values[0], values[1]),
        _ => Distribution::Triangular(values[0], values[1], values[2]),
    }
}
